"""CQL's penalty: against integrals that are known, against NumPy, and which way it pushes."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from plain_networks import ACTIONS, COUNT, OBSERVATIONS, both_values, some_rows

from phyb.algorithms.cql import CQL, CQLConfig, Proposals, conservative_gap, log_integral, logged_density, propose
from phyb.errors import UsageError
from phyb.policy.actor import Actor
from phyb.policy.critics import Critics

DRAWN = 4


@pytest.fixture(scope="module")
def networks():
    actor_key, critic_key = jax.random.split(jax.random.key(0))
    return Actor(actor_key, OBSERVATIONS, ACTIONS, (5,)), Critics(critic_key, OBSERVATIONS, ACTIONS, (5,))


def proposed(actor, rows, count=DRAWN):
    return propose(jax.random.key(1), actor, rows.observations, rows.next_observations, ACTIONS, count)


def test_the_integral_of_a_line_is_found():
    # Q(s, a) = w a + c without hidden layers: the integral over [-1, 1] is exp(c) 2 sinh(w) / w.
    critics, actor = Critics(jax.random.key(0), 1, 1, ()), Actor(jax.random.key(1), 1, 1, ())
    wide = ([jnp.zeros((1, 2))], [jnp.array([0.1, 0.6])])  # with a spread near 1, so that no action weighs too much
    actor = eqx.tree_at(lambda a: (a.trunk.weights, a.trunk.biases), actor, wide)
    weights = jnp.array([[[0.5], [2.0]], [[-1.0], [-0.7]]])
    biases = jnp.array([[0.3], [0.0]])
    critics = eqx.tree_at(lambda c: (c.networks.weights[0], c.networks.biases[0]), critics, (weights, biases))
    states = jnp.array([[1.0], [-1.0]])
    proposals = propose(jax.random.key(2), actor, states, states[::-1], 1, 30_000)
    found = np.asarray(log_integral(critics, states, proposals))
    slope, level = np.asarray(weights)[:, 1, 0, None], np.asarray(weights)[:, 0] * np.asarray(states).T
    expected = level + np.asarray(biases) + np.log(2.0 * np.sinh(slope) / slope)
    np.testing.assert_allclose(np.exp(found - expected), 1.0, atol=0.01)


@pytest.mark.parametrize(("temperature", "groups"), [(1.0, "all"), (2.0, "all"), (1.0, "triples")])
def test_the_gap_is_that_of_the_paper(networks, temperature, groups):
    (actor, critics), rows = networks, some_rows()
    proposals = proposed(actor, rows)
    config = CQLConfig(penalty_temperature=temperature, penalty_groups=groups)
    gap = 0.0
    for critic in range(2):
        for row in range(COUNT):
            state = np.repeat(np.asarray(rows.observations)[row : row + 1], 3 * DRAWN, axis=0)
            values = both_values(critics, state, proposals.actions[row])[critic]
            terms = values / temperature - np.asarray(proposals.log_density[row], np.float64)
            # One group of all, or one group of each k-th random action, k-th action at s and k-th action at s'.
            grouped = [terms] if groups == "all" else [terms[k::DRAWN] for k in range(DRAWN)]
            assert len(grouped[0]) == (3 * DRAWN if groups == "all" else 3)
            gap += temperature * np.mean([np.log(np.mean(np.exp(group))) for group in grouped]) / COUNT
        gap -= np.mean(both_values(critics, rows.observations, rows.actions)[critic])
    assert float(conservative_gap(critics, rows, proposals, config)) == pytest.approx(gap, rel=1e-4)


def test_proposals_carry_their_densities(networks):
    (actor, _), rows = networks, some_rows()
    proposals = proposed(actor, rows)
    assert proposals.actions.shape == (COUNT, 3 * DRAWN, ACTIONS)
    np.testing.assert_allclose(proposals.log_density[:, :DRAWN], np.log(0.5**ACTIONS), rtol=1e-6)
    for states, part in (
        (rows.observations, slice(DRAWN, 2 * DRAWN)),
        (rows.next_observations, slice(2 * DRAWN, None)),
    ):
        for place in range(DRAWN):
            taken = rows._replace(observations=states, actions=proposals.actions[:, part][:, place])
            inside = np.all(np.abs(taken.actions) < 0.99, axis=1)
            found = np.asarray(logged_density(actor, taken))
            expected = np.asarray(proposals.log_density[:, part][:, place])
            np.testing.assert_allclose(found[inside], expected[inside], rtol=1e-2, atol=1e-2)


def test_a_step_down_the_penalty_lowers_proposed_and_raises_logged_values(networks):
    (actor, critics), rows = networks, some_rows()
    proposals = proposed(actor, rows)
    gradient = jax.grad(lambda critics: conservative_gap(critics, rows, proposals, CQLConfig()))(critics)
    after = jax.tree.map(lambda weight, slope: weight - 0.01 * slope, critics, gradient)

    def values(critics):
        shape = (COUNT, 3 * DRAWN, OBSERVATIONS)
        far = critics(jnp.broadcast_to(rows.observations[:, None], shape), proposals.actions)
        return float(jnp.mean(critics(rows.observations, rows.actions))), float(jnp.mean(far))

    (logged, elsewhere), (logged_after, elsewhere_after) = values(critics), values(after)
    assert logged_after - logged > elsewhere_after - elsewhere
    assert logged_after > logged


def test_the_penalty_does_not_teach_the_actor(networks):
    (actor, critics), rows = networks, some_rows()

    def through(actor):
        return conservative_gap(critics, rows, proposed(actor, rows), CQLConfig())

    assert all(not np.any(leaf) for leaf in jax.tree.leaves(jax.grad(through)(actor)))


def test_actions_of_the_successor_are_judged_at_the_state_itself():
    critics = Critics(jax.random.key(0), 1, 1, ())
    weights = jnp.array([[[1.0], [0.0]], [[1.0], [0.0]]])  # Q(s, a) = s
    critics = eqx.tree_at(
        lambda c: (c.networks.weights[0], c.networks.biases[0]), critics, (weights, jnp.zeros((2, 1)))
    )
    flat = Proposals(jnp.zeros((2, 3, 1)), jnp.full((2, 3), -jnp.log(2.0)))
    found = log_integral(critics, jnp.array([[5.0], [-5.0]]), flat)
    np.testing.assert_allclose(found, np.log(2.0) + np.array([[5.0, -5.0]] * 2), rtol=1e-5)


@pytest.mark.parametrize("change", [{"penalty_weight": -1.0}, {"penalty_actions": 0}, {"penalty_temperature": 0.0}])
def test_settings_of_cql_that_make_no_sense_are_refused(change):
    with pytest.raises(UsageError, match=next(iter(change))):
        CQL(**change)
