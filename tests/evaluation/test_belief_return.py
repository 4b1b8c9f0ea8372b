"""The return under the belief, in a world whose models know liquidation by heart."""

from typing import cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from phyb.algorithms.problem import make_problem
from phyb.belief.backup import BeliefConfig
from phyb.data.collect import collect_liquidation
from phyb.dynamics.pool import Pool, Prediction
from phyb.envs.liquidation import DEFAULT_SPEC, ENV_ID
from phyb.envs.tasks import liquidation_termination
from phyb.evaluation.belief_return import Episodes, belief_returns
from phyb.evaluation.returns import episode_returns
from phyb.networks import Standardizer
from phyb.policy.actor import Actor
from phyb.policy.critics import ValueNetwork
from phyb.policy.policy import Policy


class ExactPool(eqx.Module):
    """Three models that all tell the truth, but for a share of the reward each member withholds."""

    withheld: jax.Array

    size = 3

    def predict(self, members, observations, actions):
        time, holding, price = observations.T
        fraction = jnp.clip(actions[:, 0], 0.0, 1.0)
        drift = DEFAULT_SPEC.reversion * (DEFAULT_SPEC.long_run_price - price)
        mean = jnp.stack([time + 1.0, (1.0 - fraction) * holding, price + drift], axis=-1)
        std = jnp.broadcast_to(jnp.array([0.0, 0.0, DEFAULT_SPEC.volatility]), mean.shape)
        reward = (1.0 - self.withheld[members])[:, None] * (fraction * holding * price)
        shape = (len(members), *mean.shape)
        return Prediction(
            jnp.broadcast_to(mean, shape),
            jnp.broadcast_to(std, shape),
            reward,
            jnp.zeros_like(reward),
            jnp.zeros_like(reward),
        )

    def log_prior(self, kind, strength):
        return jnp.zeros(self.size)


def problem_of(*withheld, discount=1.0):
    pool = cast(Pool, ExactPool(jnp.asarray(withheld)))
    log = collect_liquidation(5000, 0)
    return make_problem(log, pool, discount=discount, horizon=20, termination=liquidation_termination)


HONEST = problem_of(0.0, 0.0, 0.0)


def constant_policy(draw: float) -> Policy:
    actor = jax.tree.map(jnp.zeros_like, Actor(jax.random.key(0), 3, 1, (4,)))
    actor = eqx.tree_at(lambda a: a.trunk.biases[-1], actor, jnp.array([draw, 0.0]))
    return Policy(actor, Standardizer(jnp.zeros(3), jnp.ones(3)), jnp.array([-1.0]), jnp.array([1.0]))


def imagined(policy: Policy, problem=HONEST, start=(0.0, 100.0, 1.0), **kwargs) -> np.ndarray:
    return episodes(policy, problem, start, **kwargs).total


def episodes(policy: Policy, problem=HONEST, start=(0.0, 100.0, 1.0), **kwargs) -> Episodes:
    value = ValueNetwork(jax.random.key(1), 3, (8,))
    config = BeliefConfig(ensemble_size=3, noise_samples=2, **{"subset_size": 3, **kwargs})
    starts = np.tile(np.array([start], np.float32), (2000, 1))
    return belief_returns(jax.random.key(2), policy, value, problem, config, starts)


def test_selling_everything_at_once_earns_the_first_price():
    np.testing.assert_allclose(imagined(constant_policy(9.0)), 100.0, atol=0.01)


def test_never_selling_earns_nothing():
    np.testing.assert_array_equal(imagined(constant_policy(-3.0)), 0.0)


def test_an_imagined_episode_ends_when_the_rule_says_so():
    half = constant_policy(float(np.arctanh(0.5)))
    np.testing.assert_allclose(imagined(half, start=(19.0, 100.0, 1.0)), 50.0, rtol=1e-5)
    # From the step before, half is sold twice: 50, then 25 at a price that is 1 plus the drift and a zero-mean noise.
    twice = imagined(half, start=(18.0, 100.0, 1.0))
    price = 1.0 + DEFAULT_SPEC.reversion * (DEFAULT_SPEC.long_run_price - 1.0)
    assert twice.mean() == pytest.approx(50.0 + 25.0 * price, abs=5 * float(twice.std()) / len(twice) ** 0.5)


def test_exact_models_give_the_return_of_the_simulator():
    policy = constant_policy(float(np.arctanh(0.2)))
    real, told = episode_returns(policy.act, ENV_ID, 5000, 0), imagined(policy)
    error = np.hypot(real.std() / len(real) ** 0.5, told.std() / len(told) ** 0.5)
    assert told.mean() == pytest.approx(real.mean(), abs=4 * error)


def test_the_belief_follows_the_models_that_promise_least():
    greedy, problem = constant_policy(9.0), problem_of(0.0, 0.2, 0.5)
    cautious = imagined(greedy, problem, subset_size=1, draw="distinct").mean()
    assert cautious == pytest.approx(50.0, abs=0.1)
    every = imagined(greedy, problem, weight_rule="uniform", draw="distinct").mean()
    assert every == pytest.approx(100.0 * (1.0 - 0.7 / 3.0), abs=3.0)


def test_the_same_key_gives_the_same_returns():
    assert np.array_equal(imagined(constant_policy(0.3)), imagined(constant_policy(0.3)))


def test_the_discounted_return_counts_a_second_sale_at_the_discount():
    half = constant_policy(float(np.arctanh(0.5)))
    start = (18.0, 100.0, 1.0)
    plain, halved = (episodes(half, problem_of(0.0, 0.0, 0.0, discount=gamma), start) for gamma in (1.0, 0.5))
    np.testing.assert_array_equal(plain.total, plain.discounted)
    np.testing.assert_array_equal(halved.total, plain.total)
    np.testing.assert_allclose(halved.discounted, 50.0 + 0.5 * (plain.total - 50.0), rtol=1e-5)
