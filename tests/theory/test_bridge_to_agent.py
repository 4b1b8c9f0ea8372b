"""From the exact optimum to the deep agent: a log of a small finite MDP, a pool trained on it, the agent on the pool.

Two starts offer the same choice: an action below 0 leads safely to the middle level, one above 0 gambles between the
low and the high level; what is reached pays its level for ever. At the first start the gamble was logged 16 times, 60 %
of them well, so that the members of the pool, each trained on its own bootstrap, disagree; at the second it was logged
160 times, 80 % of them well.

The exact object the agent is compared with is the hybrid belief over the trained pool itself, read off at the finite
states: member i leads from (s, a) to the levels with the probabilities that its own Gaussian, put onto the levels by
linear interpolation, gives them.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from phyb.algorithms.phyb import PhyB, PhyBConfig
from phyb.algorithms.problem import make_problem
from phyb.belief.backup import BeliefConfig
from phyb.data.log import Log
from phyb.dynamics.fit import PoolConfig, fit_pool
from phyb.theory import Hybrid, evaluate, make_mdp, plan

DISCOUNT, TEMPERATURE, MEMBERS, KEPT, UPDATES = 0.7, 1.0, 6, 3, 2500
LEVELS = np.array([-1.0, 0.0, 1.0])
LOW, MIDDLE, HIGH = 2, 3, 4
VECTORS = np.array([[1, 0, 0], [0, 1, 0], [0, 0, -1], [0, 0, 0], [0, 0, 1]], np.float32)
"""The five states as the agent sees them: first start, second start, and the level."""
REWARDS = np.array([0.0, 0.0, *LEVELS])
ACTIONS = np.array([-0.5, 0.5])


def log_of_the_world(seed=0):
    rng = np.random.default_rng(seed)

    def gamble(rows, well):
        return [HIGH if row < well * rows else LOW for row in range(rows)]

    logged = [(0, 1, gamble(16, 0.6)), (1, 1, gamble(160, 0.8)), (0, -1, [MIDDLE] * 160), (1, -1, [MIDDLE] * 160)]
    logged += [(level, sign, [level] * 40) for level in (LOW, MIDDLE, HIGH) for sign in (-1, 1)]
    rows = [(state, sign * rng.uniform(0.1, 1.0), after) for state, sign, ends in logged for after in ends]
    state, action, after = (
        np.array(column) for column in zip(*(rows[i] for i in rng.permutation(len(rows))), strict=True)
    )
    never, bound = np.zeros(len(rows), bool), np.ones(1, np.float32)
    actions, rewards = action[:, None].astype(np.float32), REWARDS[state].astype(np.float32)
    return Log(VECTORS[state], actions, rewards, VECTORS[after], never, ~never, -bound, bound)


def read_off(pool):
    """The pool's members at the finite states, as transition tables (members, states, actions, states)."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(41)
    tables = np.zeros((MEMBERS, 5, 2, 5))
    for place, action in enumerate(ACTIONS):
        predicted = pool.predict(jnp.arange(MEMBERS), jnp.asarray(VECTORS), jnp.full((5, 1), action))
        # Every step ends on the levels, and the members know it.
        np.testing.assert_allclose(predicted.next_mean[..., :2], 0.0, atol=0.05)
        level = np.asarray(predicted.next_mean)[..., 2:] + np.asarray(predicted.next_std)[..., 2:] * nodes
        near = np.maximum(1.0 - np.abs(np.clip(level, -1.0, 1.0)[..., None] - LEVELS), 0.0)
        tables[:, :, place, 2:] = np.einsum("msnl,n->msl", near, weights / weights.sum())
    return tables


@pytest.fixture(scope="module")
def log():
    return log_of_the_world()


@pytest.fixture(scope="module")
def pool(log):
    config = PoolConfig(
        pool_size=MEMBERS,
        model_hidden=(32, 32),
        model_steps=1500,
        model_check_every=500,
        model_batch_size=128,
        model_weight_decay=0.0,
    )
    return fit_pool(log, config, 0, learn_termination=False)[0]


@pytest.fixture(scope="module")
def exact(pool):
    mdp = make_mdp(np.repeat(REWARDS[:, None], 2, axis=1), read_off(pool), DISCOUNT, [0.5, 0.5, 0, 0, 0])
    return mdp, Hybrid(KEPT, TEMPERATURE)


@pytest.fixture(scope="module")
def agent(log, pool):
    """The agent's actions at the five states and its critics at both actions, in the units of the rewards."""
    problem = make_problem(log, pool, discount=DISCOUNT, horizon=1000, termination="none")
    belief = BeliefConfig(
        ensemble_size=MEMBERS,
        subset_size=KEPT,
        # The agent weighs gamma q in units of the reward range, the paper q.
        belief_temperature=DISCOUNT * TEMPERATURE / float(problem.reward_scale),
        weight_rule="softmax",
        rank_by="value",
        draw="distinct",
    )
    config = PhyBConfig(
        belief=belief,
        target_divergence=0.5,
        policy_hidden=(32, 32),
        real_batch_size=32,
        rollouts=16,
        rollout_length=5,
        real_target="belief",
        target_rate=0.05,
        reference_rate=0.01,
        clone_steps=0,
    )
    algorithm = PhyB(config, steps=UPDATES)

    def train(key):
        state = algorithm.init(key, problem)
        return jax.lax.fori_loop(0, UPDATES, lambda _, s: algorithm.update(s, problem)[0], state)

    state = jax.jit(train)(jax.random.key(0))
    both = jnp.broadcast_to(jnp.asarray(ACTIONS, jnp.float32)[:, None], (5, 2, 1))
    q = state.critics.of_candidates(problem.standardizer(jnp.asarray(VECTORS)), both) * problem.reward_scale
    return algorithm.policy(state, problem).act(VECTORS)[:, 0], np.asarray(q)


def test_the_trained_members_disagree_where_the_log_is_thin(exact):
    models = exact[0].models
    mean = models[:, :2, 1, 2:] @ LEVELS
    assert np.ptp(mean[:, 0]) > 1.5 * np.ptp(mean[:, 1])
    assert mean[:, 1].min() > 0.3


def test_the_agents_policy_reaches_the_value_of_the_exact_optimum(agent, exact):
    mdp, hybrid = exact
    best = float(mdp.start @ plan(mdp, hybrid).values)
    reached = float(evaluate(mdp, np.eye(2)[(agent[0] > 0).astype(int)], hybrid).objective)
    safe = float(evaluate(mdp, np.eye(2)[np.zeros(5, int)], hybrid).objective)
    # Tolerance: a fifth of the gap between the optimum and never gambling.
    assert best - reached <= 0.2 * (best - safe)
    assert best - safe > 0.2


def test_the_agents_critics_come_near_the_exact_values_of_the_belief(agent, exact):
    mdp, hybrid = exact
    # Values reach from -3.3 to 3.3.
    np.testing.assert_allclose(agent[1], plan(mdp, hybrid).q, atol=0.3)


def test_the_critics_are_nearer_to_the_belief_than_to_the_average_model(agent, exact):
    mdp, hybrid = exact
    belief, average = (np.abs(agent[1] - plan(mdp, hybrid, name).q)[:2].mean() for name in ("hybrid", "average"))
    assert belief < 0.6 * average
