"""One update of TD3+BC, IQL and CQL: ours against d3rlpy's, in one run on the same cores.

Both sides have networks, batches and rows of the same sizes (Hopper's) and take turns, so that whatever else the
machine does meets both alike; the ratio is the median over rounds. Ours runs in compiled chunks, as the training loop
does, and draws its batches inside them. d3rlpy is timed with a batch at hand, and with the drawing of it, as its `fit`
does.

    make bench-peers                      makes the virtual environment of d3rlpy and runs this
    python benchmarks/peers.py --cores 2  on two cores
    python benchmarks/peers.py --clock processor  on a machine that does other things too
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
HIDDEN = {"td3bc": [256, 256], "iql": [256, 256], "cql": [256, 256, 256]}
UPDATES = {"td3bc": 200, "iql": 200, "cql": 40}
"""In one turn of one side."""
CLOCKS = {"wall": time.perf_counter, "processor": time.process_time}
SIZES = {"observations": 11, "actions": 3, "rows": 20_000, "batch": 256, "hidden": HIDDEN}


class Ours:
    """Chunks of updates by the training loop's own compiled function."""

    def __init__(self, clock: str) -> None:
        import jax
        import jax.numpy as jnp
        import numpy as np

        from phyb.algorithms.problem import make_problem
        from phyb.algorithms.registry import load
        from phyb.data.log import Log
        from phyb.fields import changed
        from phyb.training import loop

        random, rows = np.random.default_rng(0), SIZES["rows"]
        observations = random.normal(size=(rows, SIZES["observations"])).astype(np.float32)
        log = Log(
            observations=observations,
            actions=random.uniform(-1, 1, (rows, SIZES["actions"])).astype(np.float32),
            rewards=random.normal(size=rows).astype(np.float32),
            next_observations=np.roll(observations, -1, axis=0),
            terminated=np.arange(rows) % 500 == 499,
            truncated=np.zeros(rows, bool),
            action_low=-np.ones(SIZES["actions"], np.float32),
            action_high=np.ones(SIZES["actions"], np.float32),
        )
        problem = make_problem(log, None, discount=0.99, horizon=1000)
        self._states, self._clock = {}, CLOCKS[clock]

        def updates(name: str, count: int) -> None:
            algorithm, state, sums = self._states[name]
            state, sums = loop._updates(algorithm, state, sums, problem, jnp.asarray(count))
            self._states[name] = (algorithm, *jax.block_until_ready((state, sums)))

        for name, hidden in HIDDEN.items():
            kind = load(name)
            config = changed(kind.config_class(), {"policy_hidden": tuple(hidden), "batch_size": SIZES["batch"]})
            algorithm = kind(config, steps=1_000_000)
            state = algorithm.init(jax.random.key(0), problem)
            _, metrics = jax.eval_shape(lambda s, algorithm=algorithm: algorithm.update(s, problem), state)
            self._states[name] = (algorithm, state, {metric: jnp.zeros(x.shape) for metric, x in metrics.items()})
            updates(name, 1)
        self._updates = updates

    def seconds(self, name: str, updates: int) -> float:
        """Of one update, in a chunk of so many."""
        started = self._clock()
        self._updates(name, updates)
        return (self._clock() - started) / updates


class Theirs:
    """d3rlpy in a process of its own, which answers when asked."""

    def __init__(self, python: Path, threads: int, clock: str) -> None:
        limits = {"OMP_NUM_THREADS": str(threads)}
        command = [str(python), "-W", "ignore", str(HERE / "peer_d3rlpy.py")]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            env=os.environ | limits,
        )  # fmt: skip
        self.about = self._ask(SIZES | {"threads": threads, "clock": clock})

    def seconds(self, name: str, updates: int) -> dict[str, float]:
        """Of one update alone, and with the drawing of its batch."""
        return self._ask({"algorithm": name, "updates": updates})

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _ask(self, question: dict) -> dict:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith("{"):  # other lines are d3rlpy's own messages
                return json.loads(line)
        raise SystemExit("d3rlpy's process ended; see why with: .venv-peers/bin/python benchmarks/peer_d3rlpy.py")


def measure(ours: Ours, theirs: Theirs, rounds: int, share: float) -> list[dict]:
    """Seconds of both sides, turn by turn after one round that warms up, and the medians of their ratios."""
    found = []
    for name, count in UPDATES.items():
        updates, turns = max(1, round(share * count)), []
        for _ in range(rounds + 1):
            turns.append({"ours": ours.seconds(name, updates), **theirs.seconds(name, updates)})
        turns = turns[1:]
        row = {"algorithm": name, "hidden": HIDDEN[name], "rounds": rounds}
        row |= {side: statistics.median(turn[side] for turn in turns) for side in turns[0]}
        for side in ("update", "with_batch"):
            row[f"ratio_{side}"] = statistics.median(turn[side] / turn["ours"] for turn in turns)
        found.append(row)
        ratios = f"{row['ratio_update']:.2f}, with its batch {row['ratio_with_batch']:.2f}"
        print(f"{name}: d3rlpy takes so many times as long as ours: {ratios}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", type=Path, default=HERE.parent / ".venv-peers" / "bin" / "python")
    parser.add_argument("--cores", type=int, default=1, help="for both sides alike")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument(
        "--clock",
        choices=CLOCKS,
        default="wall",
        help="processor counts the time of cores at work, and no waiting for one",
    )
    parser.add_argument("--share", type=float, default=1.0, help="of the updates per turn; less is quicker and noisier")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    arguments = parser.parse_args()
    if not arguments.python.exists():
        parser.error(f"{arguments.python}: there is no such Python. Run: make bench-peers")
    if hasattr(os, "sched_setaffinity"):  # before arrays are imported, which count their cores by it
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: arguments.cores])
    ours, theirs = Ours(arguments.clock), Theirs(arguments.python, arguments.cores, arguments.clock)
    try:
        found = measure(ours, theirs, arguments.rounds, arguments.share)
    finally:
        theirs.close()

    from rich.console import Console
    from rich.table import Table

    title = f"One update, batch {SIZES['batch']}, {arguments.cores} core(s), {arguments.clock} time, median of "
    title += f"{arguments.rounds} rounds"
    table = Table("", "networks", title=title, title_justify="left")
    for column in ("ours, ms", "d3rlpy, ms", "with its batch, ms", "ratio", "ratio with batch"):
        table.add_column(column, justify="right")
    for row in found:
        times = [f"{1000 * row[side]:.2f}" for side in ("ours", "update", "with_batch")]
        ratios = [f"{row['ratio_update']:.1f}x", f"{row['ratio_with_batch']:.1f}x"]
        table.add_row(row["algorithm"], " x ".join(map(str, row["hidden"])), *times, *ratios)
    Console().print(table)
    print(f"d3rlpy {theirs.about['d3rlpy']}, torch {theirs.about['torch']}. A ratio above 1: ours is faster.")
    if arguments.out is not None:
        from phyb.storage.files import write_json
        from phyb.training.folder import versions

        about = {
            "cores": arguments.cores,
            "clock": arguments.clock,
            "sizes": SIZES,
            "theirs": theirs.about,
            "versions": versions(),
        }
        write_json(arguments.out, {**about, "rows": found})


if __name__ == "__main__":
    main()
