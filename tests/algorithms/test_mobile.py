"""MOBILE's inconsistency against a reference in NumPy, and where it is charged."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from plain_networks import both_values, mean_action, some_rows

from phyb.algorithms import sac
from phyb.algorithms.mobile import MOBILE, MOBILEConfig, inconsistency
from phyb.algorithms.problem import make_problem
from phyb.algorithms.settings import preset
from phyb.networks import gradient_step
from phyb.world.rollout import elite_members

SMALL = MOBILEConfig(policy_hidden=(5,), batch_size=16, rollout_starts=32, rollout_length=1, rollout_every=4,
                     real_fraction=0.5, elites=2, inconsistency_samples=3, reward_units="range")  # fmt: skip


@pytest.fixture(scope="module")
def log(linear_log):
    return linear_log(episodes=30, steps=5)


def three_members(linear_pool):
    """Members that move without noise, each elsewhere; the worst of them is no elite."""
    generator = np.random.default_rng(0)
    weights, biases = 0.5 * generator.normal(size=(3, 4, 4)), 0.5 * generator.normal(size=(3, 4))
    return linear_pool(weights, biases, holdout_nll=[2.0, 0.0, 1.0])


@pytest.fixture(scope="module")
def problem(log, linear_pool):
    return make_problem(log, three_members(linear_pool), discount=0.9, horizon=5, termination="none")


@pytest.fixture(scope="module")
def agent(problem):
    """Networks of which the target critics differ from the critics; actions have next to no noise."""
    config = sac.SACConfig(hidden=(5,))
    first, other = (sac.init(config, jax.random.key(seed), 3, 1) for seed in (0, 1))
    return first._replace(actor=first.actor.with_spread(1e-6), target_critics=other.critics)


def measured(agent, problem, rows, samples=3, elites=2):
    world = problem.learned_world()
    ask = eqx.filter_jit(inconsistency)
    members = elite_members(world.pool, elites)
    return ask(jax.random.key(0), agent, world, members, problem.standardizer, rows, samples)


def test_it_is_the_unbiased_deviation_of_target_values_over_the_best_members(problem, agent):
    rows = jax.tree.map(lambda leaf: leaf[:6], problem.rows)
    world, values = problem.learned_world(), []
    for member in (1, 2):
        told = world.predict(jnp.arange(3), rows.observations, rows.actions).next_mean[member]
        after = np.asarray(problem.standardizer(told))
        values.append(both_values(agent.target_critics, after, mean_action(agent.actor, after)).min(axis=0))
    expected = np.abs(values[0] - values[1]) / np.sqrt(2.0)  # of two numbers, divided by one
    assert expected.max() > 0.01
    np.testing.assert_allclose(measured(agent, problem, rows), expected, rtol=1e-3, atol=1e-5)


def test_members_that_agree_are_consistent_however_noisy_they_are(log, linear_pool, agent):
    generator = np.random.default_rng(0)
    weights, biases = (np.repeat(generator.normal(size=shape), 3, axis=0) for shape in ((1, 4, 4), (1, 4)))
    noisy = linear_pool(weights, biases, log_std=0.0)
    alike = make_problem(log, noisy, discount=0.9, horizon=5, termination="none")
    curious = agent._replace(actor=agent.actor.with_spread(1e6))  # an actor of a wide spread
    np.testing.assert_allclose(measured(curious, alike, alike.rows, samples=2, elites=3), 0.0, atol=1e-5)


def test_one_member_alone_is_consistent(problem, agent):
    np.testing.assert_array_equal(measured(agent, problem, problem.rows, elites=1), 0.0)


def test_imagined_targets_are_charged_and_neither_logged_ones_nor_the_buffer(problem, monkeypatch):
    def learn(optimizers, agent, key, rows, **named):
        assert named["backup_entropy"] is False
        return agent, {"rewards": rows.rewards, "target": jnp.zeros(())}

    monkeypatch.setattr(sac, "learn", learn)
    found = []
    for weight in (0.0, 3.0):
        algorithm = MOBILE(dataclasses.replace(SMALL, inconsistency_weight=weight), steps=10)
        start = algorithm.init(jax.random.key(0), problem)
        found.append(jax.jit(lambda state, of=algorithm: of.update(state, problem))(start))
    (before, free), (after, told) = found
    for ours, theirs in zip(before.buffer.rows, after.buffer.rows, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    less = np.asarray(free["rewards"] - told["rewards"])
    np.testing.assert_array_equal(less[:8], 0.0)
    assert np.all(less[8:] > 0.0)
    assert float(free["charge"]) == 0.0
    assert float(told["charge"]) == pytest.approx(less[8:].mean() * float(problem.reward_scale), rel=1e-4)
    assert float(told["reward_imagined"]) == float(free["reward_imagined"])


def test_targets_have_a_floor_that_suits_the_rewards(problem):
    floors = {
        kind: MOBILE(dataclasses.replace(SMALL, target_floor=kind), steps=10).lowest_target(problem)
        for kind in ("zero", "rewards", "none")
    }
    least = float(jnp.min(problem.rows.rewards))
    assert least < 0.0
    # The lowest reward in each of the five steps of an episode.
    assert floors == {"zero": 0.0, "rewards": pytest.approx(5 * least, rel=1e-5), "none": None}


def test_no_target_is_below_its_floor():
    config, rows = sac.SACConfig(hidden=(5,)), some_rows()
    agent = sac.init(config, jax.random.key(0), 3, 2)
    rows = rows._replace(rewards=rows.rewards - 2.0, terminated=jnp.ones(6))
    optimizers = sac.Optimizers(*[optax.adam(1e-3)] * 3)

    @jax.jit
    def mean_target(lowest):
        told = sac.learn(
            optimizers, agent, jax.random.key(0), rows, discount=0.9, target_rate=0.1, lowest_target=lowest
        )[1]
        return told["target"]

    for lowest in (-1.0, 0.0, -1e9):
        expected = np.mean(np.maximum(np.asarray(rows.rewards), lowest))
        assert float(mean_target(jnp.asarray(lowest))) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"initial_temperature": 0.2, "temperature_learning_rate": 0.0}, 0.2),  # fixed
        ({"initial_temperature": 0.9, "temperature_learning_rate": 0.5}, 1.0),  # wants to rise, and may not
    ],
)
def test_the_temperature_is_fixed_or_learned_up_to_a_bound(changes, expected):
    optimizer = MOBILE(dataclasses.replace(SMALL, **changes), steps=10)._optimizers.temperature
    value = jnp.log(changes["initial_temperature"])
    state, rise = optimizer.init(value), -jnp.ones(())
    step = jax.jit(lambda state, value: gradient_step(optimizer, rise, state, value))
    for _ in range(3):
        value, state = step(state, value)
    assert float(jnp.exp(value)) == pytest.approx(expected, rel=1e-5)


def test_a_start_above_the_bound_is_refused():
    with pytest.raises(ValueError, match="initial_temperature"):
        MOBILEConfig(initial_temperature=2.0)


def test_published_settings_of_mobile_follow_the_dataset():
    def of(dataset):
        agent = preset("paper", "mobile", dataset=dataset).agent
        return agent.inconsistency_weight, agent.rollout_length, agent.real_fraction, agent.temperature_learning_rate

    assert of("hopper-medium-v2") == (1.5, 5, 0.05, 0.0)
    assert of("halfcheetah-medium-expert") == of("halfcheetah-expert") == (1.0, 5, 0.5, 1e-4)
    assert of("walker2d-full-replay") == of("walker2d-medium-replay") == (0.5, 1, 0.05, 1e-4)
