"""Fitted Q evaluation (FQE): the value of a policy from the logged rows alone, without a dynamics model."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from phyb.algorithms.problem import Problem
from phyb.data.dataset import Rows
from phyb.errors import DivergenceError
from phyb.fields import Count, Layers, Share, check, refuse
from phyb.interrupt import Pieces, StopRequests
from phyb.networks import MLP, Standardizer, gradient_step, move_towards, start_optimizer
from phyb.policy.policy import Policy

_FINAL_LEARNING_RATE = 0.1
_LEAST_STEPS, _TIME_CONSTANTS = 100.0, 4.0
"""Steps of a fit, times the target rate: at least, and per step that values have to propagate."""
_TAIL = 0.25
"""The last share of the fit, over which the estimate should be stable."""


@dataclasses.dataclass(frozen=True)
class FittedQConfig:
    """Settings of fitted Q evaluation."""

    fit_steps: Count | None = None
    """Gradient steps of the fit of one policy; None takes what values need to propagate back through an episode, at
    least 100 / target rate. More is more exact; the command warns when an estimate was still moving at the end."""
    fit_networks: Count = 3
    """Q networks fitted side by side, each from its own weights and batches. More gives a better standard error and
    costs time in proportion."""
    fit_hidden: Layers = (128, 128)
    """Units per hidden layer of a Q network. Wider fits finer detail and costs time."""
    fit_batch_size: Count = 256
    """Logged rows per network and step. Larger is smoother and slower."""
    fit_learning_rate: Share = 1e-3
    """Step of the optimiser; it falls linearly to a tenth of itself. Lower is steadier and slower."""
    fit_target_rate: Share = 0.02
    """Share by which the target networks follow per step. Higher converges sooner, lower is smoother."""


QUICK_FIT = FittedQConfig(fit_networks=1, fit_hidden=(64, 64), fit_target_rate=0.1)
"""For evaluations during training, at a tenth of the cost. It ranks models nearly as well: on liquidation the return
under the belief comes out up to 2 % higher. Its values are too noisy to be an estimate of their own.
"""


class FittedQ(eqx.Module):
    """Q networks of one policy, stacked; values are in learning units and bounded by what the rewards allow."""

    networks: MLP
    policy: Policy
    standardizer: Standardizer
    low: Float[Array, ""]
    high: Float[Array, ""]

    def each(self, observations: Float[Array, "rows obs"]) -> Float[Array, "networks rows"]:
        """`Q_j(s, pi(s))` of every network at raw observations."""
        inputs = self._inputs(observations, self.policy.normalized(observations))
        return jnp.clip(jax.vmap(lambda network: network(inputs)[..., 0])(self.networks), self.low, self.high)

    def __call__(self, observations: Float[Array, "*rows obs"]) -> Float[Array, "*rows"]:
        """The value of standardised observations, the mean over the networks: by which a belief ranks its models."""
        rows = self.standardizer.inverse(observations).reshape(-1, observations.shape[-1])
        return jnp.mean(self.each(rows), axis=0).reshape(observations.shape[:-1])

    def target(self, rows: Rows, discount: float) -> Float[Array, "networks rows"]:
        """`y_j = r + gamma (1 - terminated) Q_j(s', pi(s'))` for rows with one batch per network, clipped."""
        inputs = self._inputs(rows.next_observations, self.policy.normalized(rows.next_observations))
        after = jnp.clip(_each(self.networks, inputs), self.low, self.high)
        return jnp.clip(rows.rewards + discount * (1.0 - rows.terminated) * after, self.low, self.high)

    def loss(self, rows: Rows, target: Float[Array, "networks rows"]) -> Float[Array, ""]:
        """`sum_j mean (Q_j(s, a) - y_j)^2 / 2`."""
        error = _each(self.networks, self._inputs(rows.observations, rows.actions)) - target
        return 0.5 * jnp.sum(jnp.mean(error**2, axis=-1))

    def _inputs(self, observations: Array, actions: Array) -> Array:
        return jnp.concatenate([self.standardizer(observations), actions], axis=-1)


_values = eqx.filter_jit(FittedQ.each)


class Fit(NamedTuple):
    """What fitted Q evaluation found for one policy."""

    q: FittedQ
    values: Float[np.ndarray, "networks starts"]
    """`Q_j(s0, pi(s0))` of every network at every start, discounted, in the units of the log's rewards."""
    drift: float
    """Change of the mean value in the last quarter of the steps; larger than its error means not converged."""


class _State(NamedTuple):
    networks: MLP
    targets: MLP
    optimizer: optax.OptState
    key: PRNGKeyArray


def fit_q(
    key: PRNGKeyArray,
    policy: Policy,
    problem: Problem,
    starts: Float[np.ndarray, "starts obs"],
    config: FittedQConfig,
    progress: Callable[[int], None] | None = None,
    stop: StopRequests | None = None,
) -> Fit:
    """Fit Q networks to a policy on logged rows, and evaluate the policy at the starts.

    Every step takes a batch of logged rows and moves each network towards

        y = r + gamma (1 - terminated) Q_target(s', pi(s')),

    with Q_target its target network. Values and targets are clipped to what the rewards allow. The estimate comes from
    the target networks, which average the noise of single steps. The same key gives every policy the same first
    weights and the same batches. The pool of the problem, if any, is not used.

    Raises:
        UsageError: a setting that no fit could use.
        DivergenceError: the fit produced numbers that are not finite.
    """
    refuse(check(config))
    steps = steps_of_fit(config, problem)
    config = dataclasses.replace(config, fit_steps=steps)
    state = _start(config, key, problem.observation_size + problem.action_size)
    rows, pieces, done = jnp.asarray(starts, jnp.float32), Pieces(stop), 0

    def work(count: int) -> None:
        nonlocal state, done
        state = jax.block_until_ready(_updates(config, state, policy, problem, jnp.asarray(count)))
        done += count
        if progress is not None:
            progress(done)

    def values() -> np.ndarray:
        found = np.asarray(_values(_q(state.targets, policy, problem), rows) * problem.reward_scale)
        if not np.all(np.isfinite(found)):
            raise DivergenceError(
                f"Fitted Q evaluation diverged within {done:,} steps. Lower --fit-learning-rate or --fit-target-rate."
            )
        return found

    late = round(_TAIL * steps)
    pieces.run(steps - late, work)
    before = values().mean()
    pieces.run(late, work)
    after = values()
    return Fit(_q(state.targets, policy, problem), after, float(after.mean() - before))


def steps_of_fit(config: FittedQConfig, problem: Problem) -> int:
    """The steps as set, else `max(4 H, 100) / target rate` with `H = min(1 / (1 - gamma), horizon)`.

    Targets that follow at rate c correct a value's error at the rate c / H or faster: exp(-4), 2 %, of it is left.
    """
    if config.fit_steps is not None:
        return config.fit_steps
    reach = problem.horizon if problem.discount == 1.0 else min(1.0 / (1.0 - problem.discount), problem.horizon)
    return round(max(_LEAST_STEPS, _TIME_CONSTANTS * reach) / config.fit_target_rate)


def _optimizer(config: FittedQConfig) -> optax.GradientTransformation:
    assert config.fit_steps is not None, "the steps of a fit are settled before it starts"
    rate = config.fit_learning_rate
    return optax.adam(optax.linear_schedule(rate, _FINAL_LEARNING_RATE * rate, config.fit_steps))


def _q(networks: MLP, policy: Policy, problem: Problem) -> FittedQ:
    return FittedQ(networks, policy, problem.standardizer, problem.value_low, problem.value_high)


def _each(networks: MLP, inputs: Float[Array, "networks rows inp"]) -> Float[Array, "networks rows"]:
    return jax.vmap(lambda network, rows: network(rows)[..., 0])(networks, inputs)


@eqx.filter_jit
def _start(config: FittedQConfig, key: PRNGKeyArray, inputs: int) -> _State:
    network_key, key = jax.random.split(key)
    sizes = (inputs, *config.fit_hidden, 1)
    networks = jax.vmap(lambda k: MLP(k, sizes))(jax.random.split(network_key, config.fit_networks))
    return _State(networks, networks, start_optimizer(_optimizer(config), networks), key)


@eqx.filter_jit
def _updates(config: FittedQConfig, state: _State, policy: Policy, problem: Problem, count: Array) -> _State:
    """`count` steps in one compiled call; pieces of any length give the same numbers."""

    def one(_: Array, state: _State) -> _State:
        key, use = jax.random.split(state.key)
        drawn = problem.sample(use, config.fit_networks * config.fit_batch_size)
        rows = Rows(*(leaf.reshape(config.fit_networks, config.fit_batch_size, *leaf.shape[1:]) for leaf in drawn))
        target = _q(state.targets, policy, problem).target(rows, problem.discount)
        gradient = jax.grad(lambda networks: _q(networks, policy, problem).loss(rows, target))(state.networks)
        networks, optimizer = gradient_step(_optimizer(config), gradient, state.optimizer, state.networks)
        return _State(networks, move_towards(state.targets, networks, config.fit_target_rate), optimizer, key)

    return jax.lax.fori_loop(0, count, one, state)
