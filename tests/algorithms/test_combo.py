"""COMBO's penalty: where values are pressed down, where they are held up, and what it shares with CQL."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from plain_networks import ACTIONS, OBSERVATIONS, both_values, some_rows

from phyb.algorithms import sac
from phyb.algorithms.combo import COMBO, COMBOConfig
from phyb.algorithms.cql import conservative_gap, log_integral, propose
from phyb.errors import UsageError

CONFIG = COMBOConfig(policy_hidden=(5,), penalty_weight=3.0, penalty_actions=4)


@pytest.fixture(scope="module")
def agent():
    return COMBO(CONFIG, steps=10), sac.init(sac.SACConfig(hidden=(5,)), jax.random.key(0), OBSERVATIONS, ACTIONS)


@pytest.mark.parametrize("where", ["mix", "model"])
def test_values_are_pressed_down_in_the_batch_and_held_up_in_the_log_only(agent, where):
    _, networks = agent
    algorithm = COMBO(dataclasses.replace(CONFIG, penalty_states=where), steps=10)
    logged, imagined, key = some_rows(0, 4), some_rows(1, 6), jax.random.key(2)
    found = float(algorithm.penalty(key, networks, logged, imagined)(networks.critics))

    states, later = (
        jnp.concatenate([getattr(logged, name), getattr(imagined, name)][0 if where == "mix" else 1 :])
        for name in ("observations", "next_observations")
    )
    proposals = propose(key, networks.actor, states, later, ACTIONS, 4)
    down = np.mean(log_integral(networks.critics, states, proposals), axis=1)
    up = np.mean(both_values(networks.critics, logged.observations, logged.actions), axis=1)
    assert found == pytest.approx(0.5 * 3.0 * float(np.sum(down - up)), rel=1e-4)


def test_imagined_actions_have_no_part_in_it(agent):
    algorithm, networks = agent
    logged, imagined, key = some_rows(0, 4), some_rows(1, 6), jax.random.key(2)
    other = imagined._replace(actions=-imagined.actions, rewards=imagined.rewards + 1.0)
    one, two = (algorithm.penalty(key, networks, logged, rows)(networks.critics) for rows in (imagined, other))
    assert float(one) == float(two)
    less = algorithm.penalty(key, networks, logged._replace(actions=-logged.actions), imagined)(networks.critics)
    assert float(one) != float(less)


def test_without_imagined_states_it_is_the_penalty_of_cql(agent):
    _, networks = agent
    rows = some_rows()
    proposals = propose(jax.random.key(2), networks.actor, rows.observations, rows.next_observations, ACTIONS, 4)
    plain = conservative_gap(networks.critics, rows, proposals, CONFIG)
    assert float(conservative_gap(networks.critics, rows, proposals, CONFIG, rows.observations)) == float(plain)


@pytest.mark.parametrize("change", [{"penalty_weight": -1.0}, {"penalty_actions": 0}])
def test_settings_of_combo_that_make_no_sense_are_refused(change):
    with pytest.raises(UsageError, match=next(iter(change))):
        COMBO(**change)
