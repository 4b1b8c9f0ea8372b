"""PMDB is PhyB under the k-th worst model, and its rollouts may stray."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from phyb.algorithms.phyb import PhyB, PhyBConfig
from phyb.algorithms.pmdb import PMDB, PMDBConfig
from phyb.algorithms.problem import make_problem
from phyb.algorithms.settings import check_settings, preset
from phyb.belief.backup import Belief, BeliefConfig
from phyb.data.log import Log
from phyb.errors import UsageError
from phyb.world.model import Imagined

SMALL = {"policy_hidden": (8,), "real_batch_size": 16, "rollouts": 12, "clone_steps": 20}
BELIEF = BeliefConfig(ensemble_size=4, subset_size=2, weight_rule="kth_min")


@pytest.fixture(scope="module")
def problem(linear_pool):
    """Members that promise different rewards and successors for the same action."""
    rng = np.random.default_rng(0)
    states, actions = rng.uniform(-1, 1, (2, 100, 1)).astype(np.float32)
    bound, ends = np.ones(1, np.float32), np.zeros(100, bool)
    log = Log(states, actions, (states + actions)[:, 0], -states, ends, ~ends, -bound, bound)
    pool = linear_pool(rng.normal(size=(5, 2, 2)), rng.normal(size=(5, 2)), log_std=-2.0)
    return make_problem(log, pool, discount=0.5, horizon=50, termination="none")


def same(one, other):
    def plain(leaf):
        return jax.random.key_data(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf

    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return [np.array_equal(plain(a), plain(b)) for a, b in pairs]


def test_it_takes_the_same_updates_as_phyb_with_the_kth_minimum(problem):
    phyb, pmdb = (
        PhyB(PhyBConfig(belief=BELIEF, **SMALL), steps=100),
        PMDB(PMDBConfig(belief=BELIEF, **SMALL), steps=100),
    )
    other = PhyB(PhyBConfig(belief=dataclasses.replace(BELIEF, weight_rule="uniform"), **SMALL), steps=100)
    state = phyb.init(jax.random.key(0), problem)
    ours, theirs, others = (jax.jit(learner.update) for learner in (phyb, pmdb, other))
    for _ in range(3):
        one, two, three = (update(state, problem)[0] for update in (ours, theirs, others))
        assert all(same(one, two))
        assert not all(same(one, three))
        state = one


def test_its_defaults_are_the_second_worst_of_ten():
    config = PMDBConfig()
    assert (config.belief.ensemble_size, config.belief.subset_size, config.belief.weight_rule) == (10, 2, "kth_min")
    assert dataclasses.replace(preset("cpu", "pmdb").agent.belief, weight_rule="scaled_softmax", subset_size=5) == (
        preset("cpu").agent.belief
    )


def test_the_published_preset_differs_from_phybs_where_the_papers_do():
    ours, theirs = preset("paper", "pmdb"), preset("paper", "phyb")
    assert ours.agent.belief.weight_rule == "kth_min"
    assert (ours.agent.real_batch_size, ours.agent.rollouts, ours.agent.stray_probability) == (128, 128, 0.1)
    assert ours.agent.reference_rate == theirs.agent.reference_rate == 1e-5
    assert ours.pool is not None
    assert ours.pool.model_hidden == (256,) * 4
    check_settings(ours)


@pytest.mark.parametrize(("chance", "seen"), [(0.0, {1}), (1.0, {0, 1, 2, 3})])
def test_rollouts_stray_to_any_drawn_member_with_their_chance(problem, chance, seen):
    learner = PMDB(PMDBConfig(belief=BELIEF, stray_probability=chance, **SMALL), steps=100)
    state, rows = learner.init(jax.random.key(0), problem), SMALL["rollouts"]
    weights = jnp.zeros((4, rows)).at[1].set(1.0)
    imagined = Imagined(
        jnp.zeros((4, 2, rows, 1)), jnp.zeros((4, rows)), jnp.ones((4, 2, rows)), jnp.ones((4, 2, rows))
    )
    belief = Belief(jnp.zeros(rows), weights, jnp.zeros((4, rows)))
    followed = set()
    for seed in range(8):
        chosen = learner._advance(jax.random.key(seed), state, problem, imagined, belief)[2]
        followed |= set(np.asarray(chosen).tolist())
    assert followed == seen


def test_a_chance_that_is_none_is_refused():
    with pytest.raises(UsageError, match=r"stray_probability: 1\.5, must be between 0 and 1"):
        PMDB(stray_probability=1.5)
