"""The two ways in which PhyB improves its policy: what the gradient learns, and which settings belong to which."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from two_sides import CONFIG, world_of_two_sides

from phyb.algorithms.phyb import PhyB
from phyb.errors import UsageError


def test_a_gradient_through_more_critics_improves_the_policy_too(linear_pool):
    """The reward is s + a / 2: actions should rise, which cloning uniform actions does not make them."""
    problem = world_of_two_sides(linear_pool, doubt=0.0, ends=0.2)
    config = dataclasses.replace(
        CONFIG,
        improvement="gradient",
        step_size_rule="fixed",
        step_size=0.05,
        behaviour_pull=1e-3,
        fixed_spread=0.3,
        critics=4,
        critic_layer_norm=True,
        critic_vote="mean",
        value_vote="random-pair",
        actor_learning_rate=1e-2,
        policy_hidden=(32, 32),
        evaluation_steps=150,
    )
    algorithm = PhyB(config, steps=400)
    state = algorithm.init(jax.random.key(0), problem)
    states = jnp.linspace(-1, 1, 9)[:, None]
    before = algorithm.policy(state, problem).normalized(states)

    @jax.jit
    def train(state):
        return jax.lax.scan(lambda s, _: algorithm.update(s, problem), state, None, length=400)

    after, metrics = train(state)
    assert float(jnp.mean(before)) < 0.3
    assert float(jnp.min(algorithm.policy(after, problem).normalized(states))) > 0.6
    assert all(np.all(np.isfinite(value)) for value in metrics.values())
    assert float(metrics["critic_spread"][-1]) > 0
    assert after.critics.networks.weights[0].shape[0] == 4


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"improvement": "gradient"}, "step_size_rule must be fixed"),
        (
            {"improvement": "gradient", "step_size_rule": "fixed", "potential_mix": 0.5},
            "potential_mix: 0.5, has no effect",
        ),
        ({"behaviour_pull": 0.1}, "behaviour_pull: 0.1, has no effect here: improvement is candidates, not gradient"),
        ({"critics": 1}, "critics: 1, must be 2 or more"),
    ],
)
def test_settings_of_the_other_improvement_are_refused(changes, message):
    with pytest.raises(UsageError, match=message):
        PhyB(**changes)
