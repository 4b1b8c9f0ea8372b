"""Training a pool: members side by side, each on its own bootstrap, in compiled chunks, until hold-out stops improving.

Every member is a function of (log, settings, seed, its number) alone: own initial weights, own bootstrap sample fixed
at the start, own batches, own gradient clip, own log-std bounds. Members may therefore be trained in groups of any
size, or on several machines.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from phyb.data.log import Log
from phyb.dynamics.model import DynamicsModel
from phyb.dynamics.pool import Pool
from phyb.dynamics.registry import make_model
from phyb.dynamics.rows import Rows, bootstrap_rows, prepare
from phyb.errors import DataError, DivergenceError, InterruptedRunError
from phyb.fields import Count, Fraction, Layers, NonNegative, OpenFraction, Positive, not_if
from phyb.interrupt import Pieces, StopRequests
from phyb.networks import gradient_step, select, start_optimizer
from phyb.storage.store import Store

POOL_FILES = "pool"
"""The folder of a store where a pool in training is kept until it is finished."""


@dataclasses.dataclass(frozen=True)
class PoolConfig:
    """How the dynamics models are built and trained."""

    model: str = "gaussian"
    """Kind of the models: gaussian; any-step, which also predicts several steps at once; a name that was registered, or
    package.module:Class; see docs/extending.md."""
    model_window: Annotated[Count, not_if("model", "gaussian")] = 1
    """K, most steps that an any-step model predicts at once. Higher looks further back in rollouts and costs time; 1
    makes it a model of one step."""
    pool_size: Count = 20
    """M, models trained. More give the belief a finer picture of what the log leaves open; cost grows with it."""
    model_hidden: Layers = (64, 64, 64)
    """Units per hidden layer of one model. Wider fits finer detail; narrower trains faster and overfits later."""
    model_learning_rate: Positive = 3e-3
    """Highest step of the optimiser, reached early and then lowered to a hundredth. Raise it to learn faster; lower
    it when hold-out loss jumps."""
    model_weight_decay: NonNegative = 0.1
    """Pull of the weights towards zero. Raise it for small or noisy logs; lower it if models fit too coarsely."""
    model_batch_size: Count = 256
    """Rows per model and step. Larger is smoother and slower."""
    model_steps: Count = 6000
    """Most steps of one model. Training stops sooner when hold-out loss stops improving."""
    model_check_every: Count = 300
    """Steps between checks on the hold-out rows; the best weights seen at such a check are kept."""
    model_patience: Count = 8
    """Checks without a better hold-out loss before a member stops. Lower saves time; higher survives plateaus."""
    holdout_fraction: OpenFraction = 0.1
    """Share of episodes kept away from training, to judge the models. Raise it for small logs with long episodes."""
    nll_beta: Fraction = 1.0
    """0 fits by plain likelihood, 1 by squared error. Lower trusts the predicted noise more while learning."""
    model_gradient_clip: Positive = 10.0
    """Largest gradient norm of one model. Lower it when training is unstable."""
    log_std_bound_weight: NonNegative = 0.01
    """Pull on the learned bounds of the predicted noise. Higher keeps them tighter."""
    members_at_once: Count = 25
    """Members trained side by side. Lower it when memory is short; only rounding depends on it."""


class MemberState(NamedTuple):
    """One member in training; in a group every leaf has a leading axis over members."""

    model: DynamicsModel
    optimizer: optax.OptState
    bootstrap: PRNGKeyArray
    """What the member's bootstrap sample follows from, see `bootstrap_rows`."""
    key: PRNGKeyArray
    best: DynamicsModel
    best_nll: Float[Array, ""]
    best_moving_nll: Float[Array, ""]
    """The best weights' loss without outputs that never change, whose predicted noise shrinks for ever."""
    stale_checks: Int[Array, ""]
    steps: Int[Array, ""]


class HoldoutCheck(NamedTuple):
    """A pool in training as a check on the hold-out rows finds it."""

    steps: int
    """Steps per member so far."""
    loss: float
    """Mean over members of their best hold-out loss."""
    moving_loss: float
    """The same without outputs that never change; NaN where an earlier version did not record it."""

    @classmethod
    def read(cls, stored: Any) -> HoldoutCheck:
        """A check as JSON keeps it; one of an earlier version has two numbers."""
        steps, loss, *rest = stored
        return cls(int(steps), float(loss), float(rest[0]) if rest else float("nan"))


Progress = Callable[[int, int, float], None]
"""Called as (member-steps done, member-steps at most, mean best hold-out loss so far, which is NaN at first)."""


@dataclasses.dataclass(frozen=True)
class Keeping:
    """Where a pool in training is kept, so that it can be gone on with, and who may stop it."""

    store: Store
    seconds: float = 30.0
    """Time between saved states of the group in training."""
    stop: StopRequests = dataclasses.field(default_factory=StopRequests)
    """Asked about every second; the state is saved before training is broken off."""

    def clear(self) -> None:
        """Delete everything kept."""
        self.store.drop(*(name for name in self.store.entries if name.startswith(f"{POOL_FILES}/")))


def fit_pool(
    log: Log,
    config: PoolConfig,
    seed: int,
    *,
    learn_termination: bool = True,
    progress: Progress | None = None,
    keeping: Keeping | None = None,
    rows_in: Path | None = None,
) -> tuple[Pool, list[HoldoutCheck]]:
    """Train a pool on a log; also gives its learning curve, group of members after group.

    Args:
        log: the transitions.
        config: sizes and training settings.
        seed: the same seed, log and settings give the same pool on the same machine.
        learn_termination: train the termination head; without it a rule must say when episodes end.
        progress: called about every second.
        keeping: where to keep finished groups of members and the state of the one in training; a call that finds
            them goes on from there and ends with the same pool.
        rows_in: a folder for the training rows of a log that is on disk; None keeps them in memory. The pool is the
            same, unless the hold-out is so large that only `MOST_HOLDOUT_ROWS` of it are used.
    """
    inputs, outputs, train, holdout = prepare(log, config.holdout_fraction, seed, rows_in)
    done_weight = 1.0 if learn_termination and bool(log.terminated.any()) else 0.0
    sizes = (train.inputs.shape[1], train.targets.shape[1])
    keys = jax.vmap(lambda number: jax.random.fold_in(jax.random.key(seed), number))(jnp.arange(config.pool_size))
    checks = -(-config.model_steps // config.model_check_every)
    total, finished, curve, groups = config.pool_size * checks * config.model_check_every, 0, [], []
    for first in range(0, config.pool_size, config.members_at_once):
        group = _Group(first, _start(keys[first : first + config.members_at_once], sizes, config), keeping)
        members = group.state.best_nll.shape[0]

        def on_progress(group: _Group = group, members: int = members, before: int = finished) -> None:
            if progress is not None:
                done = before + members * int(group.state.steps[0])
                progress(done, total, group.curve[-1].loss if group.curve else float("nan"))

        while group.checks < checks and not bool(jnp.all(group.state.stale_checks >= config.model_patience)):
            group.advance(train, config, done_weight, on_progress)
            group.state = _check(group.state, holdout, config, done_weight)
            group.checks += 1
            if not bool(jnp.all(jnp.isfinite(group.state.best_nll))):
                raise DivergenceError(
                    "The dynamics models' hold-out loss is not a number after "
                    f"{int(group.state.steps.max())} steps. Lower --model-learning-rate or --model-gradient-clip, "
                    "and look at the log with: phyb data describe FILE"
                )
            done = finished + members * group.checks * config.model_check_every
            losses = (float(jnp.mean(loss)) for loss in (group.state.best_nll, group.state.best_moving_nll))
            group.curve.append(HoldoutCheck(done // config.pool_size, *losses))
        if not group.finished:
            group.finished = True
            group.save()
        finished += members * group.checks * config.model_check_every
        curve += group.curve
        groups.append((group.state.best, group.state.best_nll))
    best, nll = jax.tree.map(lambda *parts: jnp.concatenate(parts), *groups)
    return Pool(best, inputs, outputs, nll), curve


class _Group:
    """Members trained side by side: their state, how far they are, and how they are kept."""

    def __init__(self, first: int, state: MemberState, keeping: Keeping | None) -> None:
        self.state, self.checks, self.finished = state, 0, False
        self.curve: list[HoldoutCheck] = []
        self._keeping, self._saved_at = keeping, time.monotonic()
        self._pieces = Pieces(keeping.stop if keeping is not None else None)
        self._name = f"{POOL_FILES}/members-{first:04d}.safetensors"
        # What was kept by other settings or another version is passed over.
        with contextlib.suppress(DataError, KeyError, TypeError, ValueError, OverflowError):
            about = keeping.store.about(self._name) if keeping is not None else None
            if keeping is not None and about is not None:
                checks, curve = int(about["checks"]), [HoldoutCheck.read(check) for check in about["curve"]]
                finished = bool(about["finished"])
                self.state = keeping.store.load_tree(self._name, state)
                self.checks, self.curve, self.finished = checks, curve, finished

    def advance(self, train: Rows, config: PoolConfig, done_weight: float, on_progress: Callable[[], None]) -> None:
        """Train up to the next check; a request to stop saves the state first."""

        def work(count: int) -> None:
            self.state = jax.block_until_ready(_steps(self.state, train, jnp.asarray(count), config, done_weight))
            on_progress()
            if self._keeping is not None and time.monotonic() - self._saved_at >= self._keeping.seconds:
                self.save()

        try:
            self._pieces.run((self.checks + 1) * config.model_check_every - int(self.state.steps[0]), work)
        except InterruptedRunError:
            self.save()
            raise

    def save(self) -> None:
        """Keep the state, if it is to be kept."""
        if self._keeping is not None:
            about = {"checks": self.checks, "curve": self.curve, "finished": self.finished}
            self._keeping.store.save_tree(self._name, self.state, about)
            self._saved_at = time.monotonic()


def _optimizer(config: PoolConfig) -> optax.GradientTransformation:
    schedule = optax.warmup_cosine_decay_schedule(
        0.0, config.model_learning_rate, min(200, config.model_steps // 10), config.model_steps,
        end_value=0.01 * config.model_learning_rate,
    )  # fmt: skip
    return optax.chain(
        optax.clip_by_global_norm(config.model_gradient_clip),
        optax.adamw(schedule, weight_decay=config.model_weight_decay),
    )


def _start(keys: PRNGKeyArray, sizes: tuple[int, int], config: PoolConfig) -> MemberState:
    """Members before their first step. Not compiled as a whole: the draws in it compile once each, for all fits."""
    optimizer = _optimizer(config)
    largest = jnp.full((), jnp.finfo(jnp.float32).max, jnp.float32)

    def one(key: PRNGKeyArray) -> MemberState:
        init_key, bootstrap_key, batch_key = jax.random.split(key, 3)
        model = make_model(config.model, init_key, *sizes, config.model_hidden, config.model_window)
        return MemberState(
            model,
            start_optimizer(optimizer, model),
            bootstrap_key,
            batch_key,
            model,
            largest,
            largest,
            jnp.zeros((), jnp.int32),
            jnp.zeros((), jnp.int32),
        )

    return jax.vmap(one)(keys)


@eqx.filter_jit
def _steps(
    state: MemberState, train: Rows, count: Int[Array, ""], config: PoolConfig, done_weight: float
) -> MemberState:
    """`count` steps of every member; the compiler does not know the count, so that pieces of any length are alike."""
    optimizer = _optimizer(config)

    weights = {"nll_beta": config.nll_beta, "bound_weight": config.log_std_bound_weight, "done_weight": done_weight}

    def loss(model: DynamicsModel, key: PRNGKeyArray, chosen: Array) -> Array:
        return model.training_loss(key, train, chosen, **weights)

    def step(member: MemberState) -> MemberState:
        key = jax.random.fold_in(member.key, member.steps)
        rows = train.done.shape[0]
        chosen = bootstrap_rows(member.bootstrap, jax.random.randint(key, (config.model_batch_size,), 0, rows), rows)
        gradient = jax.grad(loss)(member.model, jax.random.fold_in(key, 1), chosen)
        model, optimizer_state = gradient_step(optimizer, gradient, member.optimizer, member.model)
        return member._replace(model=model, optimizer=optimizer_state, steps=member.steps + 1)

    return jax.lax.fori_loop(0, count, lambda _, members: jax.vmap(step)(members), state)


@eqx.filter_jit
def _check(state: MemberState, holdout: Rows, config: PoolConfig, done_weight: float) -> MemberState:
    """Score every member on the hold-out rows and keep its best weights; one that has stopped changes no more."""
    moves = jnp.any(holdout.targets != 0.0, axis=0)  # a constant column is 0 once it is standardised

    def one(member: MemberState) -> MemberState:
        by_output, ends = member.model.holdout_nll(holdout)
        ends = done_weight * jnp.mean(ends)
        nll = jnp.mean(jnp.sum(by_output, axis=-1)) + ends
        moving_nll = jnp.mean(jnp.sum(by_output, axis=-1, where=moves)) + ends
        better = nll < member.best_nll
        checked = member._replace(
            best=select(better, member.model, member.best),
            best_nll=jnp.where(jnp.isfinite(nll), jnp.minimum(nll, member.best_nll), nll),
            best_moving_nll=jnp.where(better, moving_nll, member.best_moving_nll),
            stale_checks=jnp.where(better, 0, member.stale_checks + 1),
        )
        return select(member.stale_checks < config.model_patience, checked, member)

    return jax.vmap(one)(state)
