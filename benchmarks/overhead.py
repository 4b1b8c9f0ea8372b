"""Table 8 of the paper: what one update and one action cost, as ratios to TD3+BC taken in one run.

    make bench                              this and benchmarks/update.py
    python benchmarks/overhead.py --quick   one repeat of each, nothing written

All systems train on the same random rows of Hopper's shape, in batches of 256, with networks of 256 x 256 where their
papers do not ask for others. Those that learn models have 20 (PhyB, PMDB) or 7 of them with 200 x 200 x 200 units.
Rollouts that happen every so many updates are counted in, at their published 50 starts an update.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
from pages import put_between_marks
from update import OBSERVATIONS, gemm_peak, hopper_log, seconds

from phyb.algorithms.problem import make_problem
from phyb.algorithms.registry import ALGORITHMS, find, title_of
from phyb.dynamics.fit import PoolConfig, fit_pool
from phyb.fields import flat
from phyb.storage.files import write_json

ROOT = Path(__file__).resolve().parent.parent
SIZES = {
    "policy_hidden": (256, 256),
    "batch_size": 256,
    "real_batch_size": 256,
    "rollouts": 256,
    "rollout_starts": 1000,
    "rollout_every": 20,
    "ensemble_size": 10,
    "subset_size": 5,
    "clone_steps": 0,
    "return_steps": 0,
    "vae_steps": 1,
}
"""What all have alike, where they have it."""
PAPER = {
    "PhyB, N = 20": (198.84, 3.0978),
    "PhyB, N = 10": (106.41, 3.0744),
    "PhyB, N = 5": (59.07, 3.0889),
    "PMDB": (82.35, 2.9128),
    "ADM": (29.74, 9.0266),
    "DMG": (11.37, 1.6785),
    "TD3+BC": (7.27, 1.1516),
}
"""The paper's table 8: milliseconds on its GPU of an update and of an action."""
FIRST = ("td3bc", "dmg", "pmdb", "adm")


def systems() -> list[tuple[str, str, dict[str, Any]]]:
    """Title, name and settings of each row: those of the paper's table first."""
    ours = [(f"PhyB, N = {n}", "phyb", {"ensemble_size": n, "subset_size": min(n, 5)}) for n in (20, 10, 5)]
    others = [name for name in ALGORITHMS if name not in ("phyb", "phyb-search", *FIRST)]
    return [*ours, *((title_of(name), name, {}) for name in (*FIRST[::-1], *others))]


def time_of(name: str, changes: dict[str, Any], repeats: int) -> tuple[float, float]:
    """Seconds of one update and of one action."""
    kind = find(name)
    known = flat(kind(task="hopper").settings)
    fitting = {setting: value for setting, value in (SIZES | changes).items() if setting in known}
    pool_sizes = {"pool_size": 20 if name in ("phyb", "pmdb") else 7, "model_hidden": (200, 200, 200)}
    if kind.needs_pool:
        fitting |= pool_sizes
    algorithm = kind(task="hopper", **fitting)
    log, pool = hopper_log(), None
    if kind.needs_pool:
        pool_config = algorithm.settings.pool
        assert isinstance(pool_config, PoolConfig)
        quick = pool_config.__class__(**{**vars(pool_config), "model_steps": 1, "model_check_every": 1})
        pool, _ = fit_pool(log, quick, seed=0)
    problem = make_problem(log, pool, discount=0.99, horizon=1000)
    state = algorithm.init(jax.random.key(0), problem)

    @eqx.filter_jit
    def chunk(state: Any, problem: Any) -> Any:
        return jax.lax.scan(lambda s, _: algorithm.update(s, problem), state, None, length=SIZES["rollout_every"])[0]

    policy, observation = algorithm.policy(state, problem), np.zeros(OBSERVATIONS, np.float32)
    act = seconds(policy.act, observation, repeats=200)
    return seconds(chunk, state, problem, repeats=repeats) / SIZES["rollout_every"], act


def table(rows: list[dict[str, Any]]) -> str:
    """Markdown: milliseconds, and ratios to TD3+BC beside the paper's."""
    base = next(row for row in rows if row["system"] == "TD3+BC")
    lines = [
        "| system | update, ms | ratio to TD3+BC | in the paper | action, ms | ratio to TD3+BC | in the paper |",
        "|---|" + "---:|" * 6,
    ]
    for row in rows:
        train, act = (row[part] / base[part] for part in ("update", "action"))
        paper = PAPER.get(row["system"])
        theirs = ["–", "–"] if paper is None else [f"{p / b:.1f}x" for p, b in zip(paper, PAPER["TD3+BC"], strict=True)]
        lines.append(
            f"| {row['system']} | {1e3 * row['update']:.1f} | {train:.1f}x | {theirs[0]} "
            f"| {1e3 * row['action']:.3f} | {act:.1f}x | {theirs[1]} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one repeat of each, and nothing written")
    parser.add_argument("--only", nargs="*", help="names of algorithms")
    arguments = parser.parse_args()
    rows = []
    for title, name, changes in systems():
        if arguments.only is None or name in (*arguments.only, "td3bc"):
            update, act = time_of(name, changes, 1 if arguments.quick else 5)
            rows.append({"system": title, "update": update, "action": act})
            print(f"{title}: {1e3 * update:.1f} ms an update, {1e3 * act:.3f} ms an action", flush=True)
            jax.clear_caches()
    print(table(rows))
    if not arguments.quick and arguments.only is None:
        write_json(ROOT / "results" / "overhead.json", {"gemm_peak": gemm_peak(), "rows": rows})
        put_between_marks(ROOT / "docs" / "systems.md", {"overhead": table(rows)})


if __name__ == "__main__":
    main()
