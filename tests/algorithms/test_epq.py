"""EPQ against references in NumPy: who counts how much, and that with equal weights it is CQL."""

import dataclasses
import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from plain_networks import ACTIONS, COUNT, OBSERVATIONS, both_values, log_of, mlp, some_rows

from phyb.algorithms import cql, sac
from phyb.algorithms.base import critic_rows
from phyb.algorithms.cql import CQLConfig
from phyb.algorithms.epq import EPQ, EPQConfig, off_support, policy_actions
from phyb.algorithms.problem import make_problem
from phyb.algorithms.settings import preset
from phyb.errors import UsageError
from phyb.policy.actor import Actor
from phyb.policy.critics import Critics
from phyb.policy.vae import VAE, prior_latents

CONFIG = EPQConfig(
    policy_hidden=(5,),
    batch_size=16,
    vae_hidden=(5,),
    penalty_actions=3,
    behaviour_steps=2,
    cluster_steps=3,
    cluster_radius=1.5,
    weight_temperature=0.7,
    clone_steps=0,
)


@pytest.fixture(scope="module")
def problem():
    return make_problem(log_of(some_rows(count=40)), None, discount=0.9, horizon=5)


@pytest.fixture(scope="module")
def networks():
    keys = jax.random.split(jax.random.key(0), 3)
    sizes = (OBSERVATIONS, ACTIONS, (5,))
    return Actor(keys[0], *sizes), Critics(keys[1], *sizes), VAE(keys[2], *sizes, 2 * OBSERVATIONS)


def proposed(actor, rows, count=3):
    return cql.propose(jax.random.key(1), actor, rows.observations, rows.next_observations, ACTIONS, count)


def test_how_far_the_policy_is_off_the_log_is_that_of_the_paper(networks):
    (actor, _, vae), rows = networks, some_rows()
    actions = policy_actions(proposed(actor, rows), 3)
    latents = np.asarray(prior_latents(jax.random.key(2), COUNT * 3, 2 * OBSERVATIONS, 0.5)).reshape(COUNT, 3, -1)
    expected = np.zeros(COUNT)
    for row in range(COUNT):
        states = np.repeat(np.asarray(rows.observations)[row : row + 1], 3, axis=0)
        decoded = np.tanh(mlp(vae.decoder, np.concatenate([states, latents[row]], axis=1)))
        log_beta = -np.sum((np.arctanh(decoded) - np.arctanh(np.asarray(actions[row], np.float64))) ** 2, axis=1)
        expected[row] = np.mean(np.exp(-np.maximum(0.0, log_beta - 0.4 * np.log(0.5**ACTIONS))))
    assert expected.min() < 0.96 < expected.max()
    config = dataclasses.replace(CONFIG, support_threshold=0.4)
    np.testing.assert_allclose(
        off_support(jax.random.key(2), vae, rows.observations, actions, config), expected, rtol=1e-3
    )


def test_off_the_log_it_is_one_and_on_the_log_a_higher_threshold_lowers_it(networks):
    (_, _, vae), rows = networks, some_rows()
    silent = jax.tree.map(jnp.zeros_like, vae)  # decodes 0 whatever the latent
    far, near = jnp.full((COUNT, 3, ACTIONS), 1.0), jnp.zeros((COUNT, 3, ACTIONS))

    def f(actions, tau):
        config = dataclasses.replace(CONFIG, support_threshold=tau)
        return np.asarray(off_support(jax.random.key(0), silent, rows.observations, actions, config))

    np.testing.assert_array_equal(f(far, 1.0), 1.0)
    np.testing.assert_allclose(f(near, 1.0), 0.5**ACTIONS, rtol=1e-5)
    np.testing.assert_allclose(f(near, 5.0), 0.5 ** (5.0 * ACTIONS), rtol=1e-5)
    assert np.all(np.isfinite(f(-far, 1.0))), "actions at their bounds"


def test_actions_of_the_policy_at_the_state_itself_are_asked_about(networks):
    (actor, _, _), rows = networks, some_rows()
    keys = jax.random.split(jax.random.key(1), 3)
    np.testing.assert_array_equal(
        policy_actions(proposed(actor, rows), 3), sac.draw(actor, keys[1], rows.observations, 3)[0]
    )


def test_where_all_rows_count_alike_the_penalty_is_cqls(networks):
    (actor, critics, _), rows = networks, some_rows()
    proposals = proposed(actor, rows)
    plain = cql.conservative_gap(critics, rows, proposals, CQLConfig())
    weighted = cql.conservative_gap(critics, rows, proposals, CONFIG, weights=jnp.ones(COUNT))
    assert float(weighted) == pytest.approx(float(plain), rel=1e-6)


@pytest.fixture(scope="module")
def states(problem):
    """The state before each of the updates of all three parts of a run, and what the last update told."""
    algorithm = EPQ(CONFIG, steps=8)
    found, told, update = [algorithm.init(jax.random.key(0), problem)], [], jax.jit(algorithm.update)
    for _ in range(8):
        after, numbers = update(found[-1], problem)
        found.append(after)
        told.append(numbers)
    return found, told


def changed(before, after):
    return any(bool(jnp.any(a != b)) for a, b in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True))


def test_a_run_has_three_parts(states):
    found, told = states
    pairs = list(itertools.pairwise(found))
    assert [changed(a.vae, b.vae) for a, b in pairs] == [True] * 2 + [False] * 3 + [True] * 3
    assert [changed(a.weights, b.weights) for a, b in pairs] == [False] * 2 + [True] * 3 + [False] * 3
    assert [changed(a.sac, b.sac) for a, b in pairs] == [False] * 5 + [True] * 3
    assert [float(numbers["critic_loss"]) > 0 for numbers in told] == [False] * 5 + [True] * 3


def test_each_row_has_the_weight_of_its_cluster(states, problem):
    """Every row of the log, though it does not divide into the updates evenly; returns do not cross episodes."""
    observations, rewards = np.asarray(problem.rows.observations), np.asarray(problem.rows.rewards, np.float64)
    rewards = rewards * float(problem.reward_scale)
    ends = np.arange(40) % 5 == 4
    ends |= np.asarray(problem.rows.terminated) > 0
    returns, after = np.zeros(40), 0.0
    for row in range(39, -1, -1):
        after = returns[row] = rewards[row] + (0.0 if ends[row] else 0.9 * after)
    # An episode that was cut off early goes on with its mean reward up to the horizon, and only one was.
    scores = returns / 0.7
    distances = np.linalg.norm(observations[:, None] - observations[None], axis=2)
    gap = np.mean(np.min(np.where(distances > 0, distances, np.inf), axis=1))
    assert float(states[0][0].radius) == pytest.approx(1.5 * gap, rel=1e-4)
    whole = np.asarray([not 0 <= row - 2 < 3 for row in range(40)])  # rows 2 to 4: the episode after the early end
    near = distances <= 1.5 * gap
    expected = np.exp(scores) / np.sum(np.exp(scores)[None] * near, axis=1)
    clear = whole & ~np.any(near & ~whole[None], axis=1)
    assert clear.sum() > 20
    assert len({round(weight, 3) for weight in expected[clear]}) > 5
    np.testing.assert_allclose(np.asarray(states[0][-1].weights)[clear], expected[clear], rtol=1e-3)


def test_rows_count_by_their_weights_in_error_and_penalty(states, problem):
    found, told = states
    state, numbers = found[5], told[5]
    _, batch_key, _, proposal_key, support_key, learn_key = jax.random.split(state.key, 6)
    chosen = problem.draw(batch_key, 16)
    rows, weights = critic_rows(problem, problem.take(chosen), CONFIG), np.asarray(state.weights)[chosen]
    proposals = cql.propose(proposal_key, state.actor, rows.observations, rows.next_observations, ACTIONS, 3)

    next_actions, _ = sac.act(state.actor, jax.random.split(learn_key)[0], rows.next_observations)
    later = both_values(state.sac.target_critics, rows.next_observations, next_actions).min(axis=0)
    target = np.asarray(rows.rewards) + 0.9 * (1.0 - np.asarray(rows.terminated)) * later
    errors = both_values(state.sac.critics, rows.observations, rows.actions) - target
    expected = 0.5 * np.sum(np.mean(np.maximum(weights, 0.2) * errors**2, axis=1))
    assert float(numbers["critic_loss"]) == pytest.approx(expected, rel=1e-4)

    off = off_support(support_key, found[6].vae, rows.observations, policy_actions(proposals, 3), CONFIG)
    counts = np.maximum(weights * np.asarray(off), 0.005)
    above = np.asarray(cql.log_integral(state.sac.critics, rows.observations, proposals))
    logged = both_values(state.sac.critics, rows.observations, rows.actions)
    penalty = 0.5 * 20.0 * np.sum(np.mean(counts * (above - logged), axis=1))
    assert float(numbers["penalty"]) == pytest.approx(penalty, rel=1e-3)
    assert float(numbers["row_weight"]) == pytest.approx(weights.mean(), rel=1e-5)


def test_fitted_values_are_of_the_logged_action_and_replace_the_returns(problem):
    config = dataclasses.replace(
        CONFIG,
        policy_hidden=(32,),
        logged_values="fitted",
        behaviour_steps=150,
        cluster_steps=1,
        vae_learning_rate=1e-2,
    )
    algorithm = EPQ(config, steps=200)
    state = algorithm.init(jax.random.key(0), problem)
    run = eqx.filter_jit(lambda s: jax.lax.fori_loop(0, 151, lambda _, s: algorithm.update(s, problem)[0], s))
    after = run(state)
    assert not np.allclose(after.scores, state.scores)
    assert np.corrcoef(after.scores, state.scores)[0, 1] > 0.7


def test_published_settings_by_data_set():
    agent = {name: preset("paper", "epq", dataset=name).agent for name in EPQ.datasets}
    assert len(agent) == 18
    assert agent["halfcheetah-random"].support_threshold == 10.0
    assert agent["hopper-expert"].support_threshold == 1.0, "its own, not that of medium-expert"
    assert agent["walker2d-expert"].weight_temperature == 0.5, "the released file has a typo in its name"
    assert {name for name, one in agent.items() if one.logged_values == "fitted"} == {
        "hopper-medium",
        "walker2d-medium",
        "walker2d-random",
    }


@pytest.mark.parametrize("change", [{"weight_temperature": 0.0}, {"cluster_size": 0}, {"support_threshold": -1.0}])
def test_settings_of_epq_that_make_no_sense_are_refused(change):
    with pytest.raises(UsageError, match=next(iter(change))):
        EPQ(**change)
