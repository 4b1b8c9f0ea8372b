"""ORAAC: targets by hand, what learns when, and caution that shows where risk and mean disagree."""

import dataclasses
import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from phyb.algorithms import oraac
from phyb.algorithms.base import reward_factor
from phyb.algorithms.oraac import ORAAC, ORAACConfig
from phyb.algorithms.problem import make_problem
from phyb.data.dataset import Rows
from phyb.data.log import Log
from phyb.networks import move_towards

CONFIG = ORAACConfig(
    policy_hidden=(32,),
    batch_size=64,
    actor_learning_rate=1e-2,
    critic_learning_rate=1e-2,
    target_rate=0.05,
    reach=1.5,
    latent_bound=1.0,
    vae_hidden=(16,),
    vae_learning_rate=1e-2,
    vae_steps=2,
    critic_levels=8,
    actor_levels=8,
    huber_width=0.05,
    actor_every=3,
)
STEPS = 600


@pytest.fixture(scope="module")
def problem():
    """One step from a state that says nothing: action a earns `a / 2 + (1 + a) e`, e from N(0, 1).

    The mean is best at a = 1. The mean of the worst tenth, `a / 2 - 1.755 (1 + a)`, is best at a = -1.
    """
    rng = np.random.default_rng(0)
    actions = rng.uniform(-1, 1, (4000, 1)).astype(np.float32)
    rewards = (actions / 2 + (1 + actions) * rng.normal(size=actions.shape))[:, 0].astype(np.float32)
    states, ends = rng.uniform(-1, 1, (4000, 1)).astype(np.float32), np.ones(4000, bool)
    bound = np.ones(1, np.float32)
    log = Log(states, actions, rewards, states, ends, ~ends, -bound, bound)
    return make_problem(log, None, discount=0.9, horizon=1)


@eqx.filter_jit
def _updated(algorithm, state, problem, count):
    return jax.lax.fori_loop(0, count, lambda _, state: algorithm.update(state, problem)[0], state)


def updated(algorithm, state, problem, count):
    return _updated(algorithm, state, problem, jnp.asarray(count))  # a traced count: one and many share their code


def changed(before, after):
    return any(bool(jnp.any(a != b)) for a, b in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True))


def constant(critic, number):
    """The critic whose every quantile is this number."""
    return eqx.tree_at(lambda c: c.head.biases[-1], jax.tree.map(jnp.zeros_like, critic), jnp.array([number]))


@pytest.fixture(scope="module")
def neutral():
    return ORAAC(dataclasses.replace(CONFIG, risk="neutral"), steps=STEPS)


@pytest.fixture(scope="module")
def start(neutral, problem):
    return eqx.filter_jit(neutral.init)(jax.random.key(0), problem)


def test_targets_by_hand_and_nothing_after_an_end(neutral, start, problem):
    rows = Rows(jnp.zeros((2, 1)), jnp.zeros((2, 1)), jnp.array([1.0, 2.0]), jnp.ones((2, 1)), jnp.array([0.0, 1.0]))
    actor = neutral.policy(start, problem).actor
    targets = oraac.return_targets(jax.random.key(0), actor, constant(start.target_critic, 5.0), rows, CONFIG, 0.9)
    np.testing.assert_allclose(targets, [[1.0 + 0.9 * 5.0] * 8, [2.0] * 8], rtol=1e-6)
    spread = oraac.return_targets(jax.random.key(0), actor, start.target_critic, rows, CONFIG, 0.9)
    assert float(jnp.ptp(spread[0])) > 0.0, "each target is a quantile of its own"
    assert float(jnp.ptp(spread[1])) == 0.0


def test_the_behaviour_learns_at_first_and_the_policy_now_and_then(neutral, start, problem):
    states = [start]
    for _ in range(4):
        states.append(updated(neutral, states[-1], problem, 1))
    pairs = list(itertools.pairwise(states))
    assert [changed(a.vae, b.vae) for a, b in pairs] == [True, True, False, False]
    assert [changed(a.perturbation, b.perturbation) for a, b in pairs] == [True, False, False, True]
    assert all(changed(a.critic, b.critic) for a, b in pairs)
    for slow, fast in (("target_critic", "critic"), ("target_perturbation", "perturbation")):
        expected = move_towards(getattr(start, slow), getattr(states[1], fast), CONFIG.target_rate)
        for ours, theirs in zip(jax.tree.leaves(getattr(states[1], slow)), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-7)


@pytest.fixture(scope="module")
def learned(neutral, start, problem):
    careful = ORAAC(dataclasses.replace(CONFIG, risk="cvar", risk_amount=0.1), steps=STEPS)
    return {
        "neutral": (neutral, updated(neutral, start, problem, STEPS)),
        "cvar": (careful, updated(careful, start, problem, STEPS)),
    }


def test_caution_takes_the_safe_action_and_the_mean_the_risky_one(learned, problem):
    states = np.linspace(-0.9, 0.9, 20, dtype=np.float32)[:, None]
    actions = {risk: algorithm.policy(state, problem).act(states) for risk, (algorithm, state) in learned.items()}
    assert np.mean(actions["neutral"]) > 0.5
    assert np.mean(actions["cvar"]) < -0.5


def test_the_mean_of_the_critics_quantiles_is_what_the_action_earns_whatever_the_caution(learned, problem):
    levels = jnp.broadcast_to((jnp.arange(32) + 0.5) / 32, (200, 32))
    for algorithm, state in learned.values():
        actions = algorithm.policy(state, problem).normalized(problem.starts[:200])
        quantiles = state.target_critic(problem.standardizer(problem.starts[:200]), actions, levels)
        scale = problem.reward_scale / reward_factor(problem, algorithm.config.reward_units)
        assert float(jnp.mean(quantiles) * scale) == pytest.approx(float(jnp.mean(actions)) / 2, abs=0.2)


def test_the_policy_stays_within_reach_of_the_likeliest_logged_action(learned, problem):
    _, state = learned["neutral"]
    near = ORAAC(dataclasses.replace(CONFIG, reach=0.1), steps=STEPS)
    observations = problem.standardizer(problem.starts[:200])
    moved = near.policy(state, problem).actor.mode(observations)
    decoded = state.vae.decode(observations, jnp.zeros((200, 2)))
    assert 0.05 < float(jnp.max(jnp.abs(moved - decoded))) <= 0.1 + 1e-6


def test_what_the_policy_maximises_is_the_risk_measure_of_the_critic(start, problem):
    """With a critic whose quantile is linear in the level the measure is known: of U(0, 1) the share over 2."""

    class Uniform(eqx.Module):
        def __call__(self, observations, actions, levels):
            return levels

    actor = ORAAC(CONFIG, steps=STEPS).policy(start, problem).actor
    observations = jnp.zeros((5000, 1))
    for risk, expected in (("neutral", 0.5), ("cvar", 0.05)):
        config = dataclasses.replace(CONFIG, risk=risk, risk_amount=0.1)
        found = oraac.cautious_value(jax.random.key(0), actor, Uniform(), observations, config)  # pyright: ignore[reportArgumentType]
        assert float(found) == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize(("risk", "amount"), [("cvar", 0.0), ("cvar", 1.5), ("wang", -0.1)])
def test_impossible_amounts_of_caution_are_refused(risk, amount):
    with pytest.raises(ValueError, match="risk_amount"):
        ORAACConfig(risk=risk, risk_amount=amount)
