"""The loop: compiled chunks of updates, metrics after each, evaluations and checkpoints on the way."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from phyb.algorithms.base import Algorithm
from phyb.algorithms.problem import Problem
from phyb.algorithms.settings import TrainingConfig
from phyb.errors import CallbackError, DataError, DivergenceError, InterruptedRunError
from phyb.interrupt import Pieces, StopRequests
from phyb.training.folder import RunFolder
from phyb.training.metrics import MetricsWriter

State = TypeVar("State")
Evaluate = Callable[[Any, int], dict[str, Any]]
Callback = Callable[[int, Mapping[str, Any]], Any]
"""Called with (step, metrics) after every line about the policy in metrics.jsonl.

`metrics["stage"]` is "policy" for means over the last `log_every` updates, and "evaluation" for an evaluation.
Returning True stops the run: training ends with this update, and the policy it has is evaluated and reported as any
other; result.json says `stopped_at`. Anything else that is returned is ignored. Lines that were written before a run
was resumed are not heard again.
"""


class Outcome(NamedTuple, Generic[State]):
    """How a run of updates ended."""

    state: State
    stopped_at: int | None
    """The update after which a callback stopped it; None if it went to its end."""


def optimize(
    algorithm: Algorithm[Any, State],
    problem: Problem,
    config: TrainingConfig,
    seed: int,
    *,
    folder: RunFolder,
    evaluate: Evaluate,
    preface: Sequence[tuple[str, int, Mapping[str, Any]]] = (),
    progress: Callable[[int, dict[str, Any]], None] | None = None,
    stop: StopRequests | None = None,
    callbacks: Sequence[Callback] = (),
    on_message: Callable[[str], None] = lambda text: None,
) -> Outcome[State]:
    """Run all updates, from the newest checkpoint if the folder has one, and return the last state.

    A checkpoint holds all that is random or counted, the metrics file included, so that a run that was broken off
    anywhere ends with the bytes of one that was not. After every chunk the metrics are checked: the first number that
    is not finite stops the run, and the last checkpoint, written before it, stays. A request to stop ends the run
    within seconds, with a checkpoint: updates run in short compiled pieces whose length changes no number. A callback
    that returns True makes the update under way the last: it is evaluated and saved as the last one of a whole run is.

    `evaluate(state, step)` gives the lines of stage "evaluation"; `preface` has the lines (stage, step, metrics) that
    the metrics file begins with. `progress(step, newest evaluation)` is called now and then, `on_message` with
    sentences for the user, and `stop` is asked between pieces of work.
    """
    key = jax.random.key(seed)
    blank = eqx.filter_eval_shape(algorithm.init, key, problem)
    _, shapes = eqx.filter_eval_shape(algorithm.update, blank, problem)
    no_sums = {name: jnp.zeros(value.shape, jnp.float32) for name, value in shapes.items()}
    for name in folder.damaged_checkpoints():
        on_message(f"{folder.path / name}: is damaged and passed over.")
    found = folder.newest_checkpoint()
    if found is None:
        at, text, saved = _Place(), b"", -1
        state, sums = _init(algorithm, key, problem), no_sums
    else:
        name, about = found
        try:
            at, saved = _Place(**about["place"]), about["step"] if about["scheduled"] else -1
            text_shape = jax.ShapeDtypeStruct((int(about["metrics_bytes"]),), jnp.uint8)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise DataError(f"{folder.path / name}: does not say where the run stood ({error}).") from error
        state, sums, text = folder.load_tree(name, (blank, no_sums, text_shape))
        text = np.asarray(text).tobytes()
        folder.prune_checkpoints(name, config.keep_checkpoints, config.keep_best)

    def save(metrics: MetricsWriter, *, scheduled: bool) -> None:
        nonlocal saved
        metrics.sync()
        folder.add("metrics.jsonl", grows=True)
        about = {"step": at.step, "place": dataclasses.asdict(at), "metrics_bytes": len(metrics.text)}
        folder.save_checkpoint(
            (state, sums, np.frombuffer(bytes(metrics.text), np.uint8)),
            about | {"score": at.evaluation.get("belief_return")},
            scheduled=scheduled,
            keep=config.keep_checkpoints,
            keep_best=config.keep_best,
        )
        saved = at.step

    with contextlib.closing(MetricsWriter(folder, text, on_message)) as metrics:
        if found is None:
            for line in preface:
                metrics.write(*line)

        def record(stage: str, numbers: Mapping[str, Any]) -> None:
            line = metrics.write(stage, at.step, numbers)
            at.stopped |= _wants_to_stop(callbacks, at.step, line)

        def updates(count: int) -> None:
            nonlocal state, sums
            state, sums = jax.block_until_ready(_updates(algorithm, state, sums, problem, jnp.asarray(count)))
            at.step, at.in_chunk = at.step + count, at.in_chunk + count

        pieces = Pieces(stop)
        try:
            while True:
                if at.in_chunk == 0:
                    if at.evaluated < at.step and (at.stopped or _due(at.step, config.evaluate_every, config)):
                        settled = _before_evaluation(algorithm, state, problem)
                        at.evaluation, at.evaluated = evaluate(settled, at.step), at.step
                        state = settled  # not before: an evaluation that is broken off is repeated as a whole
                        record("evaluation", at.evaluation)
                    if 0 < at.step != saved and (at.stopped or _due(at.step, config.checkpoint_every, config)):
                        save(metrics, scheduled=True)
                    if progress is not None:
                        progress(at.step, at.evaluation)
                    if at.step >= config.steps or at.stopped:
                        return Outcome(state, at.step if at.step < config.steps else None)
                pieces.run(_chunk_end(at.step, config) - at.step, updates)
                _check_finite(sums, at.step, folder)
                means = {name: value / at.in_chunk for name, value in sums.items()}
                sums, at.in_chunk = no_sums, 0
                record("policy", means)
        except (InterruptedRunError, CallbackError):
            _check_finite(sums, at.step, folder)
            if saved != at.step:
                save(metrics, scheduled=False)
            raise


def _wants_to_stop(callbacks: Sequence[Callback], step: int, metrics: Mapping[str, Any]) -> bool:
    """Call all of them; whether any returned True. One that raises ends the run with a `CallbackError`."""
    answers = []
    for callback in callbacks:
        try:
            answers.append(callback(step, dict(metrics)))
        except InterruptedRunError:
            raise
        except Exception as error:  # whatever a user's function may raise
            name = getattr(callback, "__qualname__", type(callback).__qualname__)
            raise CallbackError(
                f"The callback {name} failed at update {step:,} ({type(error).__name__}: {error}). Everything so far "
                "is saved; mend it and go on with resume."
            ) from error
    return any(isinstance(answer, bool | np.bool_) and bool(answer) for answer in answers)


@dataclasses.dataclass
class _Place:
    """Where a run stands: what is counted beside the algorithm's own state."""

    step: int = 0
    in_chunk: int = 0
    """Updates since the last line of metrics."""
    evaluated: int = -1
    """Step of the newest evaluation."""
    evaluation: dict[str, Any] = dataclasses.field(default_factory=dict)
    stopped: bool = False
    """Whether a callback asked to stop here."""


# Compiled once per algorithm and shapes: a second run in the same process, as in a sweep, starts at once.
@eqx.filter_jit
def _init(algorithm: Algorithm[Any, State], key: PRNGKeyArray, problem: Problem) -> State:
    return algorithm.init(key, problem)


@eqx.filter_jit
def _updates(
    algorithm: Algorithm[Any, State], state: State, sums: dict[str, Array], problem: Problem, count: Array
) -> tuple[State, dict[str, Array]]:
    """`count` updates in one compiled call, and their metrics added to `sums`.

    The count is not known to the compiler: pieces of any length are the same program and give the same numbers.
    """

    def one(_: Array, carry: tuple[State, dict[str, Array]]) -> tuple[State, dict[str, Array]]:
        state, metrics = algorithm.update(carry[0], problem)
        return state, {name: carry[1][name] + value for name, value in metrics.items()}

    return jax.lax.fori_loop(0, count, one, (state, sums))


@eqx.filter_jit
def _before_evaluation(algorithm: Algorithm[Any, State], state: State, problem: Problem) -> State:
    return algorithm.before_evaluation(state, problem)


def _chunk_end(step: int, config: TrainingConfig) -> int:
    """Where the chunk that holds the next update ends."""
    return min((step // config.log_every + 1) * config.log_every, config.steps)


def _due(step: int, every: int, config: TrainingConfig) -> bool:
    """Whether a multiple of `every`, or the end, lies in the chunk that ended at `step`; the start counts as one."""
    before = (step - 1) // config.log_every * config.log_every
    return step in (0, config.steps) or step // every > before // every


def _check_finite(sums: dict[str, Array], step: int, folder: RunFolder) -> None:
    bad = [name for name, value in sums.items() if not bool(jnp.all(jnp.isfinite(value)))]
    if bad:
        kept = folder.checkpoint_files()
        last = f"The last good checkpoint is {kept[-1]}" if kept else "There is no checkpoint yet"
        raise DivergenceError(
            f"Training diverged before update {step:,}: {', '.join(bad)} is not a finite number. {last}. "
            "Lower the learning rates, or look at the log with: phyb data describe FILE"
        )
