import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from phyb.algorithms.problem import make_problem
from phyb.belief.backup import BeliefConfig
from phyb.data.collect import collect_liquidation
from phyb.dynamics.fit import PoolConfig, fit_pool
from phyb.envs.tasks import liquidation_termination
from phyb.evaluation.belief_return import belief_returns
from phyb.networks import Standardizer
from phyb.policy.actor import Actor
from phyb.policy.critics import ValueNetwork
from phyb.policy.policy import Policy

LOG = collect_liquidation(20_000, 0)
POOL, _ = fit_pool(
    LOG,
    PoolConfig(pool_size=3, model_hidden=(32, 32), model_steps=900, model_weight_decay=1e-4),
    0,
    learn_termination=False,
)
PROBLEM = make_problem(LOG, POOL, discount=1.0, horizon=20, termination=liquidation_termination)


def constant_policy(draw: float) -> Policy:
    actor = jax.tree.map(jnp.zeros_like, Actor(jax.random.key(0), 3, 1, (4,)))
    actor = eqx.tree_at(lambda a: a.trunk.biases[-1], actor, jnp.array([draw, 0.0]))
    return Policy(actor, Standardizer(jnp.zeros(3), jnp.ones(3)), jnp.array([-1.0]), jnp.array([1.0]))


def imagined(policy: Policy, **kwargs) -> np.ndarray:
    value = ValueNetwork(jax.random.key(1), 3, (8,))
    config = BeliefConfig(ensemble_size=3, subset_size=3, noise_samples=2, **kwargs)
    starts = np.tile(np.array([[0.0, 100.0, 1.0]], np.float32), (500, 1))
    return belief_returns(jax.random.key(2), policy, value, PROBLEM, config, starts)


def test_selling_everything_at_once_earns_the_first_price_in_the_belief_too():
    returns = imagined(constant_policy(5.0))
    assert abs(returns.mean() - 100.0) < 30.0
    assert returns.std() < 30.0


def test_never_selling_earns_next_to_nothing():
    # A roughly trained pool errs by a unit or two of reward per step; selling would earn about 100.
    assert np.all(imagined(constant_policy(-3.0)) < 40.0)


def test_an_imagined_episode_ends_when_the_rule_says_so():
    late = np.tile(np.array([[19.0, 100.0, 1.0]], np.float32), (200, 1))
    value = ValueNetwork(jax.random.key(1), 3, (8,))
    config = BeliefConfig(ensemble_size=3, subset_size=3, noise_samples=2)
    half = belief_returns(jax.random.key(2), constant_policy(float(np.arctanh(0.5))), value, PROBLEM, config, late)
    assert abs(half.mean() - 50.0) < 25.0


def test_the_same_key_gives_the_same_returns():
    assert np.array_equal(imagined(constant_policy(0.3)), imagined(constant_policy(0.3)))
