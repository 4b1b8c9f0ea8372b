"""How long one policy update takes at Hopper sizes, and what the amortised value saves.

All figures are taken in one run on one machine: seconds differ between machines, ratios hardly do.
Run with: make bench
"""

from __future__ import annotations

import argparse
import dataclasses
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table

from phyb.algorithms.phyb import PhyB, PhyBConfig
from phyb.algorithms.problem import Problem, make_problem
from phyb.belief.backup import BeliefConfig
from phyb.data.log import Log
from phyb.dynamics.fit import PoolConfig, fit_pool

OBSERVATIONS, ACTIONS, ROWS = 11, 3, 20_000


def seconds(function, *arguments, repeats: int) -> float:
    """Median seconds of a call, after one call that compiles."""
    jax.block_until_ready(function(*arguments))
    taken = []
    for _ in range(repeats):
        start = time.perf_counter()
        jax.block_until_ready(function(*arguments))
        taken.append(time.perf_counter() - start)
    return float(np.median(taken))


def gemm_peak() -> float:
    """FLOP per second of a large float32 matrix product, the best of a few."""
    a = jax.random.normal(jax.random.key(0), (2048, 2048))
    product = jax.jit(jnp.matmul)
    return 2 * 2048**3 / min(seconds(product, a, a, repeats=3) for _ in range(3))


def hopper_log() -> Log:
    """Random rows of Hopper's shape: arithmetic does not care what they mean."""
    random = np.random.default_rng(0)
    ends = np.arange(ROWS) % 500 == 499
    observations = random.normal(size=(ROWS, OBSERVATIONS)).astype(np.float32)
    return Log(
        observations=observations,
        actions=random.uniform(-1, 1, (ROWS, ACTIONS)).astype(np.float32),
        rewards=random.normal(size=ROWS).astype(np.float32),
        next_observations=observations + 0.1 * random.normal(size=observations.shape).astype(np.float32),
        terminated=ends,
        truncated=np.zeros(ROWS, bool),
        action_low=-np.ones(ACTIONS, np.float32),
        action_high=np.ones(ACTIONS, np.float32),
    )


def hopper_sized(hidden: tuple[int, ...]) -> Problem:
    """Such rows and an untrained pool."""
    log = hopper_log()
    pool, _ = fit_pool(log, PoolConfig(pool_size=20, model_hidden=hidden, model_steps=1, model_check_every=1), seed=0)
    return make_problem(log, pool, discount=0.99, horizon=1000)


def update_seconds(config: PhyBConfig, problem: Problem, updates: int, repeats: int) -> tuple[float, float]:
    """Seconds of one update inside a compiled chunk, and the FLOP of the matrix products XLA counts in it."""
    algorithm = PhyB(config, steps=10_000)
    state = algorithm.init(jax.random.key(0), problem)

    @eqx.filter_jit
    def chunk(state, problem):
        return jax.lax.scan(lambda s, _: algorithm.update(s, problem), state, None, length=updates)[0]

    return seconds(chunk, state, problem, repeats=repeats) / updates, matmul_flops(algorithm, state, problem)


def matmul_flops(algorithm: PhyB, state, problem: Problem) -> float:
    """Multiplications and additions of all matrix products in one update, loops included."""
    jaxpr = jax.make_jaxpr(lambda s, p: eqx.filter(algorithm.update(s, p), eqx.is_array))(state, problem)
    return _count(jaxpr.jaxpr)


def _count(jaxpr) -> float:
    total = 0.0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            depth = np.prod([equation.invars[0].aval.shape[axis] for axis in contracted])
            total += 2.0 * depth * np.prod(equation.outvars[0].aval.shape)
        repeats = equation.params.get("length", 1) if equation.primitive.name == "scan" else 1
        for parameter in equation.params.values():
            inner = getattr(parameter, "jaxpr", parameter)
            if hasattr(inner, "eqns"):
                total += repeats * _count(inner)
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one repeat of everything, and no direct estimator")
    quick = parser.parse_args().quick
    console, repeats = Console(), 1 if quick else 5

    belief = BeliefConfig(ensemble_size=10, subset_size=5)
    ours = PhyBConfig(belief=belief, policy_hidden=(256, 256), real_batch_size=256, rollouts=256, clone_steps=0)
    wide = dataclasses.replace(ours, policy_hidden=(256, 512, 256))
    direct = dataclasses.replace(
        wide,
        belief=dataclasses.replace(belief, noise_samples=10, noise="private"),
        actor_candidates=10,
        reference_candidates=10,
        logged_candidates=0,
        value_estimator="direct",
    )
    peak = gemm_peak()
    small_world, wide_world = hopper_sized((200, 200, 200)), hopper_sized((256, 512, 512, 256))

    rows = [("amortised value, cpu sizes (256 x 256, S = 2)", *update_seconds(ours, small_world, 20, repeats))]
    rows.append(("amortised value, released sizes (S = 2)", *update_seconds(wide, wide_world, 5, repeats)))
    if not quick:
        rows.append(("direct value, released sizes and settings (S = 10)", *update_seconds(direct, wide_world, 1, 1)))
    table = Table("one update: N = 10, k = 5, batch 256 + 256", title="PhyB at Hopper sizes", title_justify="left")
    for name in ("seconds", "GFLOP", "share of GEMM peak", "direct / this"):
        table.add_column(name, justify="right")
    slowest = rows[-1][1]
    for name, taken, flops in rows:
        ratio = f"{slowest / taken:.0f}x" if not quick else "-"
        table.add_row(name, f"{taken:.4f}", f"{flops / 1e9:.1f}", f"{flops / taken / peak:.0%}", ratio)
    console.print(f"GEMM peak of this machine: {peak / 1e9:.0f} GFLOP/s (float32, 2048 x 2048)")
    console.print(table)

    growth = {}
    for size in (5, 20):
        config = dataclasses.replace(ours, belief=BeliefConfig(ensemble_size=size, subset_size=5))
        growth[size] = update_seconds(config, small_world, 20, repeats)[0]
    console.print(
        f"N = 5: {growth[5] * 1e3:.1f} ms, N = 20: {growth[20] * 1e3:.1f} ms, growth {growth[20] / growth[5]:.2f}x "
        "(the paper's code: 3.4x)"
    )


if __name__ == "__main__":
    main()
