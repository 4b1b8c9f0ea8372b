"""What every algorithm must do, whatever it is: one suite over all that are registered, tiny."""

import dataclasses
import json
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from phyb.algorithms.base import Algorithm
from phyb.algorithms.problem import Problem, make_problem
from phyb.algorithms.registry import ALGORITHMS, load
from phyb.algorithms.settings import TrainingConfig, preset
from phyb.data.log import Log
from phyb.dynamics.fit import PoolConfig, fit_pool
from phyb.errors import InterruptedRunError
from phyb.fields import changed
from phyb.interrupt import StopRequests
from phyb.policy.policy import load_policy
from phyb.training.folder import RunFolder
from phyb.training.loop import optimize

STEPS = 300
TRAINING = TrainingConfig(steps=STEPS, log_every=100, evaluate_every=STEPS, checkpoint_every=STEPS)
SMALL = {
    "policy_hidden": (32, 32), "batch_size": 64, "real_batch_size": 32, "rollouts": 32, "clone_steps": 150,
    "actor_learning_rate": 3e-3, "critic_learning_rate": 3e-3, "belief": {"ensemble_size": 3, "subset_size": 2},
    "rollout_starts": 64, "rollout_every": 50,
    "sharpness": 10.0,  # IQL: at its usual 3 the many poor actions still count a third
    "improvement": 1.0,  # TD3+BC: at its usual 2.5 the actor follows critics that have seen 300 batches to the bounds
    "imitation": 1.0,  # DMG: likewise
    "behaviour_steps": 100, "cluster_steps": 10,
}  # fmt: skip
"""What makes an algorithm tiny, for those that have such a setting."""


def bandit(rows=512):
    """Episodes of one step: reward 1 - (a - best)^2 with best = x / 2 + 0.6; only the first column of x, 3, 0 changes.

    Four of five logged actions lie close around x / 2 - 0.6, the others far spread around the best one. The mean logged
    action, which cloning learns, is poor: x / 2 - 0.36. Actions lie in [-2, 2].
    """
    generator = np.random.default_rng(0)
    x = generator.uniform(-1.0, 1.0, rows)
    rare = generator.random(rows) < 0.2
    noise = np.where(rare, 0.45, 0.15) * generator.normal(size=rows)
    action = np.clip(0.5 * x + np.where(rare, 0.6, -0.6) + noise, -2.0, 2.0)
    observations = np.stack([x, np.full(rows, 3.0), np.zeros(rows)], axis=1).astype(np.float32)
    ends, bound = np.ones(rows, bool), np.full(1, 2.0, np.float32)
    return Log(
        observations,
        action[:, None].astype(np.float32),
        (1.0 - regret(x, action)).astype(np.float32),
        observations,
        ends,
        ~ends,
        -bound,
        bound,
    )


def regret(x, action):
    """What an action earns less than the best one."""
    return (action - 0.5 * x - 0.6) ** 2


def small(name):
    """The algorithm with its settings for two cores, shrunk."""
    agent = preset("cpu", name).agent
    fields = {field.name for field in dataclasses.fields(agent)}
    return load(name)(changed(agent, {key: SMALL[key] for key in SMALL if key in fields}), steps=STEPS)


@pytest.fixture(scope="module")
def without_models():
    return make_problem(bandit(), None, discount=0.9, horizon=1)


def learned(**kind):
    config = PoolConfig(pool_size=2, model_hidden=(32,), model_steps=600, model_check_every=100, **kind)
    return make_problem(bandit(), fit_pool(bandit(), config, 0)[0], discount=0.9, horizon=1)


@pytest.fixture(scope="module")
def with_models():
    return learned()


@pytest.fixture(scope="module")
def with_any_step_models():
    return learned(model="any-step", model_window=2)


class StopSoon(StopRequests):
    """Asks to stop after a few pieces of work."""

    asked = 0

    def check(self):
        self.asked += 1
        self.requested = self.asked > 3
        super().check()


@dataclasses.dataclass
class Trained:
    algorithm: Algorithm
    problem: Problem
    state: Any
    folder: RunFolder


@pytest.fixture(scope="module", params=list(ALGORITHMS))
def trained(request, tmp_path_factory):
    algorithm, folder = small(request.param), RunFolder(tmp_path_factory.mktemp(request.param))
    kinds = {"gaussian": "with_models", "any-step": "with_any_step_models"}
    pool = algorithm.settings.pool
    problem = request.getfixturevalue("without_models" if pool is None else kinds[pool.model])
    state = optimize(algorithm, problem, TRAINING, 0, folder=folder, evaluate=lambda state, step: {}).state
    return Trained(algorithm, problem, state, folder)


def mean_regret(policy, problem):
    observations = np.asarray(problem.rows.observations)
    return float(np.mean(regret(observations[:, 0], policy.act(observations)[:, 0])))


def same(one, other):
    return all(
        np.array_equal(np.asarray(a), np.asarray(b))
        for a, b in zip(jax.tree.leaves(_plain(one)), jax.tree.leaves(_plain(other)), strict=True)
    )


def _plain(tree):
    return jax.tree.map(
        lambda leaf: jax.random.key_data(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf, tree
    )


CLONING = 0.96**2
"""Regret of the mean logged action."""


def test_it_improves_on_the_log_and_on_cloning(trained):
    policy = trained.algorithm.policy(trained.state, trained.problem)
    behaviour = 1.0 - float(jnp.mean(trained.problem.rows.rewards) * trained.problem.reward_scale)
    assert behaviour == pytest.approx(1.2, abs=0.1)
    if trained.algorithm.name == "bc":
        assert mean_regret(policy, trained.problem) == pytest.approx(CLONING, abs=0.1)
    else:
        assert mean_regret(policy, trained.problem) < 0.4 * CLONING


def test_an_algorithm_whose_updates_do_nothing_would_be_noticed(with_models):
    """PhyB starts from the clone; where it would end with a learning rate of zero lies far beyond the bar above."""
    phyb = small("phyb")
    start = jax.jit(phyb.init)(jax.random.key(0), with_models)
    assert mean_regret(phyb.policy(start, with_models), with_models) == pytest.approx(CLONING, abs=0.2)


def test_its_actions_keep_to_the_bounds_everywhere(trained):
    policy = trained.algorithm.policy(trained.state, trained.problem)
    far = np.random.default_rng(1).normal(0.0, 1e3, (200, 3)).astype(np.float32)
    actions = policy.act(far)
    assert actions.shape == (200, 1)
    assert np.all(np.abs(actions) <= 2.0)


def test_its_policy_survives_a_file(trained, tmp_path):
    policy = trained.algorithm.policy(trained.state, trained.problem)
    policy.save(tmp_path)
    rows = np.asarray(trained.problem.rows.observations[:50])
    np.testing.assert_array_equal(load_policy(tmp_path).act(rows), policy.act(rows))


def test_a_run_that_was_broken_off_ends_with_the_same_bytes(trained, tmp_path):
    # An unbroken run and one in two parts: the same seed gives the same numbers, and none of them is lost.
    folder, again = RunFolder(tmp_path), {"folder": RunFolder(tmp_path), "evaluate": lambda state, step: {}}
    with pytest.raises(InterruptedRunError):
        optimize(trained.algorithm, trained.problem, TRAINING, 0, **again, stop=StopSoon())
    assert 0 < folder.newest_checkpoint()[1]["step"] < STEPS  # pyright: ignore[reportOptionalSubscript]
    state = optimize(trained.algorithm, trained.problem, TRAINING, 0, **again).state
    assert same(state, trained.state)
    assert folder.metrics.read_bytes() == trained.folder.metrics.read_bytes()


def test_all_it_tells_is_finite_and_has_a_name_for_the_report(trained):
    lines = [json.loads(line) for line in trained.folder.metrics.read_text().splitlines()]
    told = [line for line in lines if line["stage"] == "policy"]
    assert len(told) == STEPS // TRAINING.log_every
    assert all(np.all(np.isfinite(value)) for line in told for name, value in line.items() if name != "stage")
    assert any(name.endswith("loss") or name == "episode_return" for name in told[0])


def test_equal_settings_share_compiled_code_and_others_do_not(trained):
    name = trained.algorithm.name
    assert small(name) == trained.algorithm
    assert hash(small(name)) == hash(trained.algorithm)
    assert load(name)(trained.algorithm.config, steps=STEPS + 1) != trained.algorithm
