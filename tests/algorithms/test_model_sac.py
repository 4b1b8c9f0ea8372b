"""SAC on logged and imagined rows: batches that mix both in the same units, and published settings by dataset."""

import dataclasses

import jax
import numpy as np
import pytest

from phyb.algorithms.base import critic_rows
from phyb.algorithms.model_sac import ModelConfig, ModelSAC, by_dataset
from phyb.algorithms.problem import make_problem


def test_batches_mix_the_log_with_what_was_imagined_in_the_same_units(linear_log, linear_pool):
    pool = linear_pool(np.zeros((2, 4, 4)), [[0.5, 0.0, 0.0, 30.0]] * 2)
    problem = make_problem(linear_log(episodes=20, steps=5), pool, discount=0.9, horizon=5, termination="none")
    config = ModelConfig(policy_hidden=(4,), batch_size=10, rollout_starts=8, rollout_length=2, rollout_every=2,
                         real_fraction=0.3)  # fmt: skip
    algorithm = ModelSAC(config, steps=5)
    assert config.real_rows == 3
    state = algorithm.init(jax.random.key(0), problem)
    assert int(state.buffer.filled) == 0
    filled, metrics = [], {}
    update = jax.jit(lambda state: algorithm.update(state, problem))
    for _ in range(4):
        state, metrics = update(state)
        filled.append(int(state.buffer.filled))
    assert filled == [16, 16, 32, 32]  # a round at the first update and then every second
    assert float(metrics["reward_imagined"]) == pytest.approx(30.0, rel=1e-5)  # in the units of the log
    rows = critic_rows(problem, state.buffer.sample(jax.random.key(1), 50), config)
    np.testing.assert_allclose(rows.rewards, 30.0, rtol=1e-5)
    moved = (rows.next_observations - rows.observations)[:, 0] * problem.standardizer.scale[0]
    np.testing.assert_allclose(moved, 0.5, rtol=1e-4)


@pytest.mark.parametrize(("fraction", "rows"), [(0.0, 1), (0.05, 1), (0.5, 8), (1.0, 15)])
def test_there_is_at_least_one_row_of_each_kind(fraction, rows):
    assert ModelConfig(batch_size=16, real_fraction=fraction).real_rows == rows
    with pytest.raises(ValueError, match="batch_size"):
        dataclasses.replace(ModelConfig(), batch_size=1)


def test_datasets_without_published_settings_take_those_of_the_nearest():
    found = by_dataset(rollout_length={"medium-replay": (1, 2, 3), "medium-expert": (4, 5, 6)})
    assert found["hopper-medium-replay"] == {"rollout_length": 2} == found["hopper-full-replay"]
    assert found["walker2d-medium-expert"] == {"rollout_length": 6} == found["walker2d-expert"]
    assert "hopper-medium" not in found
