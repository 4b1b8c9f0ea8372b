"""A world whose values can be worked out by hand, and small settings to learn it with."""

import numpy as np

from phyb.algorithms.phyb import PhyBConfig
from phyb.algorithms.problem import make_problem
from phyb.belief.backup import BeliefConfig
from phyb.data.log import Log

BELIEF = BeliefConfig(ensemble_size=3, subset_size=2, noise_samples=2, wall_start=1.0, wall_end=2.0)
CONFIG = PhyBConfig(
    belief=BELIEF,
    potential_mix=0.9,
    step_size_rule="target",
    target_divergence=0.5,
    actor_candidates=3,
    reference_candidates=3,
    logged_candidates=2,
    policy_hidden=(8,),
    actor_learning_rate=3e-3,
    critic_learning_rate=1e-2,
    target_rate=0.1,
    reference_rate=0.05,
    real_batch_size=16,
    rollouts=12,
    rollout_length=3,
    clone_steps=200,
    evaluation_steps=2,
)
ROWS, DISCOUNT = 200, 0.5


def world_of_two_sides(linear_pool, *, doubt, ends):
    """s' = -s and r = s + a / 2, as five members see it that differ by `doubt`; some logged rows are ends."""
    rng = np.random.default_rng(0)
    states, actions = rng.uniform(-1, 1, (2, ROWS, 1)).astype(np.float32)
    terminated = rng.random(ROWS) < ends
    bound = np.ones(1, np.float32)
    log = Log(states, actions, (states + actions / 2)[:, 0], -states, terminated, ~terminated, -bound, bound)
    weights = np.array([[-2.0, 1.0], [0.0, 0.5]]) + doubt * rng.normal(size=(5, 2, 2))
    pool = linear_pool(weights, doubt * rng.normal(size=(5, 2)), log_std=-2.0 if doubt else -40.0)
    return make_problem(log, pool, discount=DISCOUNT, horizon=50, termination="none")
