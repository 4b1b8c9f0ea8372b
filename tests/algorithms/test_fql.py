"""FQL against a reference in NumPy, what its gradients must not reach, and its deployed policy."""

import dataclasses

import equinox as eqx
import jax
import numpy as np
import pytest
from plain_networks import log_of, mlp, some_rows

from phyb.algorithms import fql
from phyb.algorithms.base import logged_rows
from phyb.algorithms.fql import FQL, FQLConfig
from phyb.algorithms.problem import make_problem
from phyb.errors import UsageError
from phyb.policy.actor import Actor
from phyb.policy.critics import Critics

CONFIG = FQLConfig(policy_hidden=(6, 5), batch_size=16, distillation=0.7, flow_steps=3, target_rate=0.5)


def gelu(rows):
    return 0.5 * rows * (1.0 + np.tanh(np.sqrt(2.0 / np.pi) * (rows + 0.044715 * rows**3)))


def normalized(rows):
    rows = gelu(rows)
    return (rows - rows.mean(axis=-1, keepdims=True)) / np.sqrt(rows.var(axis=-1, keepdims=True) + 1e-6)


def joined(*parts):
    return np.concatenate([np.asarray(part, np.float64) for part in parts], axis=-1)


def both(critics, *parts):
    return np.stack([mlp(critics.networks, joined(*parts), member, normalized)[:, 0] for member in range(2)])


@pytest.fixture(scope="module")
def problem():
    return make_problem(log_of(some_rows(count=40)), None, discount=0.9, horizon=5)


def louder(network, factor):
    """The network whose outputs are so many times as large."""
    last = lambda net: (net.weights[-1], net.biases[-1])  # noqa: E731
    return eqx.tree_at(last, network, tuple(factor * leaf for leaf in last(network)))


@pytest.fixture(scope="module")
def start(problem):
    """Some state whose target critics differ from its critics, and whose actions partly lie beyond their bounds."""
    state, other = (FQL(CONFIG, steps=100).init(jax.random.key(seed), problem) for seed in (0, 1))
    actor = eqx.tree_at(lambda actor: actor.network, state.actor, louder(state.actor.network, 3.0))
    return state._replace(actor=actor, target_critics=other.critics)


def given(state, problem):
    """Rows and draws of the update of this state."""
    _, batch_key, draw_key = jax.random.split(state.key, 3)
    rows = logged_rows(batch_key, problem, CONFIG)
    return rows, fql.draw(draw_key, *rows.actions.shape)


@pytest.mark.parametrize("vote", ["mean", "least"])
@pytest.mark.parametrize("normalize", [False, True])
def test_one_update_has_the_losses_of_the_paper(vote, normalize, start, problem):
    config = dataclasses.replace(CONFIG, critic_vote=vote, normalize_values=normalize)
    rows, draws = given(start, problem)
    _, told = jax.jit(FQL(config, steps=100).update)(start, problem)
    here, actions = (np.asarray(part, np.float64) for part in (rows.observations, rows.actions))

    times, noise = np.asarray(draws.times), np.asarray(draws.flow)
    velocity = mlp(start.flow.network, joined(here, (1 - times) * noise + times * actions, times), None, gelu)
    assert float(told["flow_loss"]) == pytest.approx(np.mean((velocity - (actions - noise)) ** 2), rel=1e-4)

    point = np.asarray(draws.here, np.float64)
    for time in (0.0, 1 / 3, 2 / 3):
        point = point + mlp(start.flow.network, joined(here, point, np.full((16, 1), time)), None, gelu) / 3
    action = mlp(start.actor.network, joined(here, draws.here), None, gelu)
    assert np.abs(action).max() > 1.0, "the distance is to the action before it is clipped, and this batch shows it"
    distance = np.mean((action - np.clip(point, -1, 1)) ** 2)
    assert float(told["distillation_error"]) == pytest.approx(distance, rel=1e-4)

    values = both(start.critics, here, np.clip(action, -1, 1)).mean(axis=0)
    loss, _ = fql.actor_loss((start.flow, start.actor), start.critics, rows, draws, config)
    expected = float(told["flow_loss"]) + 0.7 * distance
    expected -= values.mean() / (np.abs(values).mean() if normalize else 1.0)
    assert float(loss) == pytest.approx(expected, rel=1e-4, abs=1e-5)

    there = np.clip(mlp(start.actor.network, joined(rows.next_observations, draws.there), None, gelu), -1, 1)
    later = both(start.target_critics, rows.next_observations, there)
    later = later.mean(axis=0) if vote == "mean" else later.min(axis=0)
    target = np.asarray(rows.rewards) + 0.9 * (1 - np.asarray(rows.terminated)) * later
    errors = both(start.critics, here, actions) - target
    assert float(told["critic_loss"]) == pytest.approx(np.mean(errors**2), rel=1e-4)
    assert float(told["q_logged"]) == pytest.approx(target.mean(), rel=1e-4)


def test_rows_that_were_cut_off_are_backed_up_and_those_that_ended_are_not(start, problem):
    rows, draws = given(start, problem)
    target = fql.backup_target(start.actor, start.target_critics, rows, draws.there, CONFIG, 0.9)
    logged = np.asarray(problem.rows.terminated)
    assert 0 < logged.sum() < 8, "most of the eight episodes were cut off, one ended"
    ended = np.asarray(rows.terminated) > 0
    np.testing.assert_allclose(target[ended], rows.rewards[ended], rtol=1e-6)
    assert np.all(np.asarray(target)[~ended] != np.asarray(rows.rewards)[~ended])


def test_values_move_the_policy_only_and_the_flow_is_not_solved_backwards(start, problem):
    rows, draws = given(start, problem)
    networks = (start.flow, start.actor)

    def loss(networks, critics, config):
        return fql.actor_loss(networks, critics, rows, draws, config)[0]

    # The flow's gradient is that of its own loss, whatever the weight of the distance to its actions.
    few, many = (
        jax.grad(loss)(networks, start.critics, dataclasses.replace(CONFIG, distillation=weight)) for weight in (1, 99)
    )
    for one, other in zip(jax.tree.leaves(few[0]), jax.tree.leaves(many[0]), strict=True):
        np.testing.assert_array_equal(one, other)
    # With the values normalised, the policy follows them as far whatever their scale: their size is a number.
    config = dataclasses.replace(CONFIG, normalize_values=True)
    larger = eqx.tree_at(lambda critics: critics.networks, start.critics, louder(start.critics.networks, 1000.0))
    one, other = (jax.grad(loss)(networks, critics, config)[1] for critics in (start.critics, larger))
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5)


def test_no_gradient_of_the_policys_loss_reaches_the_critics(start, problem):
    """The critics after an update are the same whatever the policy's loss weighs."""
    one, other = (
        jax.jit(FQL(dataclasses.replace(CONFIG, distillation=weight), steps=100).update)(start, problem)[0]
        for weight in (0.1, 50.0)
    )
    for a, b in zip(jax.tree.leaves(one.critics), jax.tree.leaves(other.critics), strict=True):
        np.testing.assert_array_equal(a, b)
    pairs = zip(jax.tree.leaves(one.actor), jax.tree.leaves(other.actor), strict=True)
    assert any(not np.array_equal(a, b) for a, b in pairs)


def test_its_critics_normalise_their_layers_and_its_policy_does_not(start):
    assert isinstance(start.critics, Critics)
    assert start.critics.networks.layer_norm
    assert not start.actor.network.layer_norm
    assert not start.flow.network.layer_norm
    assert not isinstance(start.actor, Actor)


@pytest.mark.parametrize("change", [{"distillation": 0.0}, {"flow_steps": 0}])
def test_settings_of_fql_that_make_no_sense_are_refused(change):
    with pytest.raises(UsageError, match=next(iter(change))):
        FQL(**change)
