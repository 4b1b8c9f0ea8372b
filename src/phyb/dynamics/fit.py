"""Training a pool: members side by side, each on its own bootstrap, in compiled chunks, until hold-out stops improving.

Every member is a function of (log, settings, seed, its number) alone: own initial weights, own bootstrap sample fixed
at the start, own batches, own gradient clip, own log-std bounds. Members may therefore be trained in groups of any
size, or on several machines.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from phyb.data.log import Log
from phyb.dynamics.model import GaussianModel, cross_entropy, gaussian_nll, training_loss
from phyb.dynamics.pool import Pool
from phyb.errors import DivergenceError
from phyb.networks import Standardizer, gradient_step, select, start_optimizer


@dataclasses.dataclass(frozen=True)
class PoolConfig:
    """How the dynamics models are built and trained."""

    pool_size: int = 20
    """M, models trained. More give the belief a finer picture of what the log leaves open; cost grows with it."""
    model_hidden: tuple[int, ...] = (64, 64, 64)
    """Units per hidden layer of one model. Wider fits finer detail; narrower trains faster and overfits later."""
    model_learning_rate: float = 3e-3
    """Highest step of the optimiser, reached early and then lowered to a hundredth. Raise it to learn faster; lower
    it when hold-out loss jumps."""
    model_weight_decay: float = 0.1
    """Pull of the weights towards zero. Raise it for small or noisy logs; lower it if models fit too coarsely."""
    model_batch_size: int = 256
    """Rows per model and step. Larger is smoother and slower."""
    model_steps: int = 6000
    """Most steps of one model. Training stops sooner when hold-out loss stops improving."""
    model_check_every: int = 300
    """Steps between looks at the hold-out rows; the best weights seen at such a look are kept."""
    model_patience: int = 8
    """Looks without a better hold-out loss before a member stops. Lower saves time; higher survives plateaus."""
    holdout_fraction: float = 0.1
    """Share of episodes kept away from training, to judge the models. Raise it for small logs with long episodes."""
    nll_beta: float = 1.0
    """0 fits by plain likelihood, 1 by squared error. Lower trusts the predicted noise more while learning."""
    model_gradient_clip: float = 10.0
    """Largest gradient norm of one model. Lower it when training is unstable."""
    log_std_bound_weight: float = 0.01
    """Pull on the learned bounds of the predicted noise. Higher keeps them tighter."""
    members_at_once: int = 25
    """Members trained side by side. Lower it when memory is short; the numbers do not depend on it."""


class Rows(NamedTuple):
    """Rows as a model sees them: standardised inputs and outputs, and the termination label."""

    inputs: Float[Array, "rows inp"]
    targets: Float[Array, "rows out"]
    done: Bool[Array, " rows"]


class MemberState(NamedTuple):
    """One member in training; in a group every leaf has a leading axis over members."""

    model: GaussianModel
    optimizer: optax.OptState
    bootstrap: Int[Array, " rows"]
    key: PRNGKeyArray
    best: GaussianModel
    best_nll: Float[Array, ""]
    stale_looks: Int[Array, ""]
    steps: Int[Array, ""]


Progress = Callable[[int, int, float], None]
"""Called as (member-steps done, member-steps at most, mean best hold-out loss)."""


def fit_pool(
    log: Log,
    config: PoolConfig,
    seed: int,
    *,
    learn_termination: bool = True,
    progress: Progress | None = None,
) -> Pool:
    """Train a pool on a log.

    Args:
        log: the transitions.
        config: sizes and training settings.
        seed: the same seed, log and settings give the same pool on the same machine.
        learn_termination: train the termination head; without it a rule must say when episodes end.
        progress: told about progress after every look at the hold-out rows.
    """
    inputs, outputs, train, holdout = _prepare(log, config, seed)
    done_weight = 1.0 if learn_termination and bool(log.terminated.any()) else 0.0
    optimizer = _optimizer(config)
    # Not compiled as a whole: the random draws in it compile once each, and later fits find them compiled.
    start = partial(_start, config=config, optimizer=optimizer, rows=len(train.done))
    look = eqx.filter_jit(partial(_train_and_look, config=config, optimizer=optimizer, done_weight=done_weight))
    sizes = (train.inputs.shape[1], train.targets.shape[1])
    keys = jax.vmap(lambda number: jax.random.fold_in(jax.random.key(seed), number))(jnp.arange(config.pool_size))
    looks = -(-config.model_steps // config.model_check_every)
    total, finished, groups = config.pool_size * looks * config.model_check_every, 0, []
    for first in range(0, config.pool_size, config.members_at_once):
        group_keys = keys[first : first + config.members_at_once]
        state = start(group_keys, sizes)
        for _ in range(looks):
            state = look(state, train, holdout)
            finished += len(group_keys) * config.model_check_every
            if not bool(jnp.all(jnp.isfinite(state.best_nll))):
                raise DivergenceError(
                    "The dynamics models' hold-out loss is not a number after "
                    f"{int(state.steps.max())} steps. Lower --model-learning-rate or --model-gradient-clip, "
                    "and look at the log with: phyb data describe FILE"
                )
            if progress is not None:
                progress(finished, total, float(jnp.mean(state.best_nll)))
            if bool(jnp.all(state.stale_looks >= config.model_patience)):
                break
        groups.append((state.best, state.best_nll))
    members, nll = jax.tree.map(lambda *parts: jnp.concatenate(parts), *groups)
    return Pool(members, inputs, outputs, nll)


def split_rows(log: Log, holdout_fraction: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Row numbers for training and for hold-out; whole episodes go to one side, since neighbouring rows are alike.

    A log of very few episodes is cut inside its episodes instead: the last share of its rows is held out.
    """
    episode = log.episode_of_row
    count = int(episode[-1]) + 1
    if count < 5:
        cut = max(1, min(round(len(log) * (1.0 - holdout_fraction)), len(log) - 1))
        return np.arange(cut), np.arange(min(cut, len(log) - 1), len(log))
    held = np.random.default_rng([seed, 0x40]).permutation(count)[: max(1, round(count * holdout_fraction))]
    is_held = np.isin(episode, held)
    return np.flatnonzero(~is_held), np.flatnonzero(is_held)


def _prepare(log: Log, config: PoolConfig, seed: int) -> tuple[Standardizer, Standardizer, Rows, Rows]:
    train_rows, holdout_rows = split_rows(log, config.holdout_fraction, seed)
    raw_inputs = jnp.concatenate([log.observations, log.actions], axis=1)
    change = log.next_observations.astype(np.float64) - log.observations
    raw_targets = jnp.asarray(np.concatenate([change, log.rewards[:, None]], axis=1), jnp.float32)
    inputs, outputs = Standardizer.fit(raw_inputs[train_rows]), Standardizer.fit(raw_targets[train_rows])
    everything = Rows(inputs(raw_inputs), outputs(raw_targets), jnp.asarray(log.terminated))
    train, holdout = (jax.tree.map(lambda leaf, r=rows: leaf[r], everything) for rows in (train_rows, holdout_rows))
    return inputs, outputs, train, holdout


def _optimizer(config: PoolConfig) -> optax.GradientTransformation:
    schedule = optax.warmup_cosine_decay_schedule(
        0.0, config.model_learning_rate, min(200, config.model_steps // 10), config.model_steps,
        end_value=0.01 * config.model_learning_rate,
    )  # fmt: skip
    return optax.chain(
        optax.clip_by_global_norm(config.model_gradient_clip),
        optax.adamw(schedule, weight_decay=config.model_weight_decay),
    )


def _start(
    keys: PRNGKeyArray,
    sizes: tuple[int, int],
    *,
    config: PoolConfig,
    optimizer: optax.GradientTransformation,
    rows: int,
) -> MemberState:
    def one(key: PRNGKeyArray) -> MemberState:
        init_key, bootstrap_key, batch_key = jax.random.split(key, 3)
        model = GaussianModel(init_key, *sizes, config.model_hidden)
        return MemberState(
            model,
            start_optimizer(optimizer, model),
            jax.random.randint(bootstrap_key, (rows,), 0, rows),
            batch_key,
            model,
            jnp.full((), jnp.finfo(jnp.float32).max, jnp.float32),
            jnp.zeros((), jnp.int32),
            jnp.zeros((), jnp.int32),
        )

    return jax.vmap(one)(keys)


def _train_and_look(
    state: MemberState,
    train: Rows,
    holdout: Rows,
    *,
    config: PoolConfig,
    optimizer: optax.GradientTransformation,
    done_weight: float,
) -> MemberState:
    """`model_check_every` steps of every member, then one look at the hold-out rows."""

    def loss(model: GaussianModel, batch: Rows) -> Array:
        return training_loss(
            model,
            *batch,
            nll_beta=config.nll_beta,
            bound_weight=config.log_std_bound_weight,
            done_weight=done_weight,
        )

    def step(member: MemberState, _: None) -> tuple[MemberState, None]:
        key = jax.random.fold_in(member.key, member.steps)
        chosen = member.bootstrap[jax.random.randint(key, (config.model_batch_size,), 0, member.bootstrap.shape[0])]
        gradient = jax.grad(loss)(member.model, jax.tree.map(lambda leaf: leaf[chosen], train))
        model, optimizer_state = gradient_step(optimizer, gradient, member.optimizer, member.model)
        return member._replace(model=model, optimizer=optimizer_state, steps=member.steps + 1), None

    def one(member: MemberState) -> MemberState:
        moved, _ = jax.lax.scan(step, member, None, length=config.model_check_every)
        heads = moved.model(holdout.inputs)
        nll = jnp.mean(jnp.sum(gaussian_nll(heads, holdout.targets), axis=-1))
        nll += done_weight * jnp.mean(cross_entropy(heads.done_logit, holdout.done))
        better = nll < moved.best_nll
        moved = moved._replace(
            best=select(better, moved.model, moved.best),
            best_nll=jnp.where(jnp.isfinite(nll), jnp.minimum(nll, moved.best_nll), nll),
            stale_looks=jnp.where(better, 0, moved.stale_looks + 1),
        )
        return select(member.stale_looks < config.model_patience, moved, member)

    return jax.vmap(one)(state)
