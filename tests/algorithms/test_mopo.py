"""MOPO's penalty, on members made by hand."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from phyb.algorithms.model_sac import ModelState
from phyb.algorithms.mopo import MOPO, MOPOConfig, uncertainty
from phyb.algorithms.problem import make_problem
from phyb.algorithms.settings import preset


def test_uncertainty_is_the_largest_norm_of_standard_deviations_of_all_members(linear_log, linear_pool):
    # Norms of next state and reward together: 5, 13 and 3; the largest is that of a member that is no elite.
    stds = np.array([[3.0, 1e-9, 1e-9, 4.0], [5.0, 1e-9, 12.0, 1e-9], [2.0, 2.0, 1.0, 1e-9]])
    pool = linear_pool(np.zeros((3, 4, 4)), np.zeros((3, 4)), log_std=np.log(stds), holdout_nll=[0.0, 9.0, 1.0])
    problem = make_problem(linear_log(episodes=10, steps=5), pool, discount=0.9, horizon=5, termination="none")
    rows = problem.rows
    np.testing.assert_allclose(uncertainty(problem.learned_world(), rows.observations, rows.actions), 13.0, rtol=1e-4)

    observations, actions = rows.observations[:6], rows.actions[:6]
    alive, state = jnp.ones(6), ModelState(*[None] * 4)  # pyright: ignore[reportArgumentType]
    found = {}
    for weight in (0.0, 0.5, 2.0):
        algorithm = MOPO(MOPOConfig(elites=1, uncertainty_weight=weight), steps=10)
        step = eqx.filter_jit(algorithm.step)
        moved = step(jax.random.key(0), state, problem, observations, actions, alive)
        np.testing.assert_array_equal(moved.weight, alive)
        found[weight] = moved.row
    for weight in (0.5, 2.0):
        less = (found[0.0].rewards - found[weight].rewards) * problem.reward_scale
        np.testing.assert_allclose(less, weight * 13.0, rtol=1e-4)
        np.testing.assert_array_equal(found[0.0].next_observations, found[weight].next_observations)


def test_published_settings_follow_the_dataset():
    agent = preset("paper", "mopo", dataset="hopper-medium-v2").agent
    assert (agent.uncertainty_weight, agent.rollout_length) == (5.0, 5)
    agent = preset("paper", "mopo", dataset="walker2d-full-replay").agent  # as medium-replay
    assert (agent.uncertainty_weight, agent.rollout_length) == (2.5, 1)


def test_two_cores_share_the_pool_of_other_algorithms():
    for name in ("mopo", "combo", "1r2r", "rambo", "mobile", "morel", "orpo"):
        assert preset("cpu", name).pool == preset("cpu", "phyb").pool
