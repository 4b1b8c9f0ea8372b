"""The loop: compiled chunks of updates, metrics after each, evaluations and checkpoints on the way."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from functools import partial
from types import FrameType
from typing import Any, Protocol, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from phyb.algorithms.problem import Problem
from phyb.errors import DivergenceError, InterruptedRunError
from phyb.policy.policy import Policy
from phyb.training.folder import MetricsWriter, RunFolder
from phyb.training.settings import TrainingConfig

State = TypeVar("State")
Evaluate = Callable[[Any, int], dict[str, Any]]


class Algorithm(Protocol[State]):
    """What the loop asks of an algorithm: pure functions from state to state."""

    name: str

    def init(self, key: PRNGKeyArray, problem: Problem) -> State:
        """The state before the first update."""
        ...

    def update(self, state: State, problem: Problem) -> tuple[State, dict[str, Array]]:
        """One update and its metrics."""
        ...

    def policy(self, state: State, problem: Problem) -> Policy:
        """The policy to evaluate and deploy."""
        ...


def optimize(
    algorithm: Algorithm[State],
    problem: Problem,
    config: TrainingConfig,
    seed: int,
    *,
    folder: RunFolder,
    evaluate: Evaluate,
    progress: Callable[[int, dict[str, Any]], None] | None = None,
) -> State:
    """Run all updates, from the newest checkpoint if the folder has one, and return the last state.

    After every chunk the metrics are checked: the first number that is not finite stops the run, and the last
    checkpoint, written before it, stays. Ctrl-C or SIGTERM ends the run after the chunk under way, with a checkpoint.

    Args:
        algorithm: what to run.
        problem: log and world.
        config: lengths and intervals.
        seed: the same seed gives the same numbers on the same machine.
        folder: where checkpoints and metrics go.
        evaluate: called with (state, step); what it gives is written as stage "evaluation".
        progress: told (step, newest metrics and evaluation) after every chunk.
    """
    key = jax.random.key(seed)
    found = folder.load_checkpoint(eqx.filter_eval_shape(algorithm.init, key, problem))
    state, step = found if found is not None else (eqx.filter_jit(algorithm.init)(key, problem), 0)
    run_chunk = eqx.filter_jit(partial(_chunk, algorithm))
    known: dict[str, Any] = {}
    with MetricsWriter(folder) as metrics, stop_requests() as stop_requested:
        if found is None:
            known |= evaluate(state, 0)
            metrics.write("evaluation", 0, known)
        while step < config.steps:
            length = min(config.log_every - step % config.log_every, config.steps - step)
            state, told = jax.block_until_ready(run_chunk(state, problem, length))
            step += length
            _check_finite(told, step, folder)
            metrics.write("policy", step, told)
            known |= {name: float(value) for name, value in told.items() if value.ndim == 0}
            if _due(step, config.evaluate_every, length, config.steps):
                result = evaluate(state, step)
                metrics.write("evaluation", step, result)
                known |= result
            if progress is not None:
                progress(step, known)
            stopping = stop_requested() and step < config.steps
            if stopping or _due(step, config.checkpoint_every, length, config.steps):
                folder.save_checkpoint(state, step, config.keep_checkpoints)
            if stopping:
                raise InterruptedRunError(
                    f"Stopped after {step:,} of {config.steps:,} updates; everything up to here is saved. "
                    f"Go on with the same command and --resume (folder {folder.path})."
                )
    return state


@contextlib.contextmanager
def stop_requests() -> Iterator[Callable[[], bool]]:
    """Turn the first Ctrl-C or SIGTERM into a request that can be asked for; a second one stops at once.

    Signals can be caught in the main thread only; elsewhere nothing is ever requested.
    """
    asked = False
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return

    def ask(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _chunk(algorithm: Algorithm[State], state: State, problem: Problem, length: int) -> tuple[State, dict[str, Array]]:
    """`length` updates in one compiled call, and the mean of each metric over them."""
    state, told = jax.lax.scan(lambda s, _: algorithm.update(s, problem), state, None, length=length)
    return state, {name: jnp.mean(values, axis=0) for name, values in told.items()}


def _due(step: int, every: int, length: int, last: int) -> bool:
    """Whether a multiple of `every`, or the end, lies in the chunk that ended at `step`."""
    return step == last or step // every > (step - length) // every


def _check_finite(told: dict[str, Array], step: int, folder: RunFolder) -> None:
    bad = [name for name, value in told.items() if not bool(jnp.all(jnp.isfinite(value)))]
    if bad:
        kept = folder.checkpoint_files()
        last = f"The last good checkpoint is {kept[-1]}" if kept else "There is no checkpoint yet"
        raise DivergenceError(
            f"Training diverged before update {step:,}: {', '.join(bad)} is not a finite number. {last}. "
            "Lower --critic-learning-rate or --target-divergence, or look at the log with: phyb data describe FILE"
        )
