"""Whether a policy has lost: exact in a known world, and by witnesses that must agree."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from phyb.algorithms.problem import make_problem
from phyb.algorithms.retreat import evidence, gains, member_returns, verdict
from phyb.belief.backup import BeliefConfig
from phyb.data.log import Log
from phyb.policy.actor import Actor

BELIEF = BeliefConfig(ensemble_size=2, subset_size=1)


class Always(Actor):
    """Does the same everywhere."""

    action: float

    def __init__(self, action):
        super().__init__(jax.random.key(0), 1, 1, (2,))
        self.action = action

    def mode(self, observations):
        return jnp.full((*observations.shape[:-1], 1), self.action)


@pytest.fixture(scope="module")
def problem(linear_pool):
    """s' = -s and r = w a, with a wage w of each member's own, in episodes of six steps."""
    rng, bound, rows = np.random.default_rng(0), np.ones(1, np.float32), 60
    states, actions = rng.uniform(-1, 1, (2, rows, 1)).astype(np.float32)
    ends = np.arange(rows) % 6 == 5
    log = Log(states, actions, actions[:, 0], -states, np.zeros(rows, bool), ends, -bound, bound)
    weights = np.repeat([[[-2.0, 0.0], [0.0, 0.0]]], 3, axis=0)
    weights[:, 1, 1] = [1.0, 2.0, -1.0]
    pool = linear_pool(weights, np.zeros((3, 2)), log_std=-40.0)
    return make_problem(log, pool, discount=0.5, horizon=6, termination="none")


def test_what_a_policy_earns_in_each_member_is_known_exactly(problem):
    earned = member_returns(jax.random.key(0), Always(0.5), problem, BELIEF, problem.starts)
    expected = 0.5 * np.outer([2.0 * (1.0 - 0.5**6), 6.0], [1.0, 2.0, -1.0])
    np.testing.assert_allclose(earned * problem.reward_scale, expected, rtol=1e-4)


def test_gains_are_those_of_the_new_policy_discounted_and_in_whole_episodes(problem):
    found = gains(jax.random.key(0), Always(0.5), Always(-0.5), problem, BELIEF) * problem.reward_scale
    discounted = 2.0 * (1.0 - 0.5**6)
    np.testing.assert_allclose(found, np.outer([discounted, 6.0], [1.0, 2.0, -1.0]), rtol=1e-4)


@pytest.mark.parametrize(
    ("discounted", "whole", "expected"),
    [
        ([1.0, 1.2, 0.8], [1.0, 1.2, 0.8], 1),
        ([-1.0, -1.2, -0.8], [-1.0, 1.2, -0.1], -1),
        ([0.1, -0.2, 0.1], [-10.0, -12.0, -8.0], -1),  # whole episodes lose, and the discounted return cannot tell
        ([1.0, 1.02, 0.98], [-10.0, -12.0, -8.0], -1),  # it gains, by a gait that falls later
        ([1.0, 1.2, 0.8], [-1.0, 1.2, -0.3], 1),  # whole episodes cannot tell
        ([-1.0, 1.2, -0.3], [1.0, -1.2, 0.1], 0),
        ([0.0, 0.0, 0.0], [0.0, 0.0, 0.0], 0),
    ],
)
def test_members_are_witnesses(discounted, whole, expected):
    gained, lost = verdict(evidence(jnp.asarray([discounted, whole])))
    assert bool(gained) - bool(lost) == expected


def test_evidence_is_in_standard_errors():
    np.testing.assert_allclose(evidence(jnp.asarray([[1.0, 3.0], [-4.0, -2.0]])), [2.0 / 1.0, -3.0 / 1.0], rtol=1e-5)
