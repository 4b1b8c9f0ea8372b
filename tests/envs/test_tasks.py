import jax.numpy as jnp
import numpy as np
import pytest

from phyb.data.collect import collect_liquidation
from phyb.envs.tasks import TASKS, TERMINATION_RULES, Task, find_task, normalized_score

RULE = TERMINATION_RULES["liquidation"]


def liquidation() -> Task:
    task = find_task("phyb/Liquidation-v0")
    assert task is not None
    return task


@pytest.mark.parametrize("module", [np, jnp])
def test_the_termination_rule_agrees_with_the_simulator(module):
    log = collect_liquidation(50_000, seed=3)
    arrays = (module.asarray(x) for x in (log.observations, log.actions, log.next_observations))
    found = np.asarray(RULE(*arrays))
    np.testing.assert_array_equal(found, log.terminated)
    early = log.terminated & (log.next_observations[:, 0] < 19.5)
    assert early.sum() > 100


def test_the_termination_rule_takes_any_batch_shape():
    states = jnp.zeros((4, 7, 3)).at[..., 1].set(100.0).at[0, :, 0].set(20.0)
    ended = RULE(states, None, states)
    assert ended.shape == (4, 7)
    assert int(ended.sum()) == 7


def test_liquidation_facts():
    task = liquidation()
    assert find_task("liquidation") is task
    assert (task.horizon, task.discount) == (20, 1.0)
    assert task.optimal_return == pytest.approx(137.48, abs=0.005)


@pytest.mark.parametrize(
    ("env_id", "low", "high"),
    [
        ("phyb/Liquidation-v0", 0.0, 135.0),
        ("Hopper-v5", -20.272305, 3234.3),
        ("HalfCheetah-v4", -280.178953, 12135.0),
        ("Walker2d-v5", 1.629008, 4592.3),
        ("Ant-v5", -325.6, 3879.7),
    ],
)
def test_scores_run_from_the_low_to_the_high_reference(env_id, low, high):
    task = find_task(env_id)
    assert task is not None
    assert normalized_score(task, low) == pytest.approx(0.0)
    assert normalized_score(task, high) == pytest.approx(100.0)
    assert normalized_score(task, (low + high) / 2) == pytest.approx(50.0)


def test_ids_and_names_are_unique():
    for field in ("env_id", "name"):
        assert len({getattr(task, field) for task in TASKS}) == len(TASKS)


def test_every_known_rule_belongs_to_a_task_and_every_task_has_one():
    assert {task.termination for task in TASKS} == set(TERMINATION_RULES)


def test_pendulum_has_a_horizon_and_no_references():
    task = find_task("pendulum")
    assert task is not None
    assert (task.env_id, task.horizon) == ("Pendulum-v1", 200)
    assert normalized_score(task, -150.0) is None


def test_what_is_not_known_is_none():
    assert find_task("CartPole-v1") is None
    hopper = find_task("hopper")
    assert hopper is not None
    assert hopper.env_id == "Hopper-v5"
    assert hopper.optimal_return is None
    assert normalized_score(Task("Mine-v0", "mine", 10), 3.0) is None
