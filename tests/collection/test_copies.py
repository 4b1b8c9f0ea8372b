import counting
import jax
import numpy as np
import pytest

from phyb.collection.copies import Chance, Copies, find_task, record
from phyb.errors import UsageError

counting.register()


@pytest.fixture(scope="module")
def task():
    return find_task(counting.ENV_ID)


@pytest.fixture(scope="module")
def recorded(task):
    chance = Chance(0, 1)
    return record(task, 2, 20, chance, lambda observations, step: np.zeros((2, 2)), lambda rows: None)


def test_rows_lead_to_the_state_reached_and_go_on_from_the_state_after_the_reset(task, recorded):
    columns = task.columns(recorded)
    assert recorded.shape == (10, 2, task.width)
    np.testing.assert_array_equal(columns["observations"][:, 0, 1], [0, 1, 2, 0, 1, 2, 0, 1, 2, 0])
    np.testing.assert_array_equal(columns["next_observations"][:, 0, 1], [1, 2, 3, 1, 2, 3, 1, 2, 3, 1])
    np.testing.assert_array_equal(columns["next_observations"][:, 1, 0], columns["observations"][:, 1, 0])


def test_ends_are_what_the_simulator_said_and_terminated_wins(task, recorded):
    columns = task.columns(recorded)
    np.testing.assert_array_equal(np.flatnonzero(columns["terminated"][:, 0]), [2, 8])  # the third episode said both
    np.testing.assert_array_equal(np.flatnonzero(columns["truncated"][:, 0]), [5])


def test_actions_are_scaled_to_the_bounds_and_never_leave_them(task):
    np.testing.assert_allclose(task.scaled(np.array([[-1.0, -1.0], [0.0, 0.0], [1.0, 1.0]])), [[-1, 0], [0, 2], [1, 4]])
    many = task.scaled(np.random.default_rng(0).uniform(-1.0, 1.0, (1000, 2)).astype(np.float32) * 1.00001)
    assert (many >= task.action_low).all()
    assert (many <= task.action_high).all()


def test_chance_is_settled_by_seed_and_piece():
    def numbers(*piece):
        chance = Chance(*piece)
        key = jax.random.key_data(chance.key).tolist()
        return [*chance.environment_seeds(2), *chance.generator.integers(2**31, size=2).tolist(), *key]

    assert numbers(7, 1, 2) == numbers(7, 1, 2)
    different = [numbers(7, 1, 2), numbers(7, 1, 3), numbers(7, 2, 2), numbers(8, 1, 2)]
    assert all(len(set(column)) == 4 for column in zip(*(row[:4] for row in different), strict=True))


def test_copies_of_a_simulator_get_seeds_of_their_own():
    pendulum = find_task("Pendulum-v1")
    with Copies(pendulum, Chance(0).environment_seeds(3)) as copies:
        assert len({tuple(row) for row in copies.observations.tolist()}) == 3
        row = copies.step(np.ones((3, 1)))
    with Copies(pendulum, Chance(0).environment_seeds(3)) as copies:
        np.testing.assert_array_equal(copies.step(np.ones((3, 1))), row)


@pytest.mark.parametrize(
    ("env_id", "said"),
    [("CartPole-v1", "actions"), ("NoSuch-v0", "NoSuch"), ("no_such_module:X-v0", "no_such_module")],
)
def test_what_cannot_be_recorded_is_refused(env_id, said):
    with pytest.raises(UsageError, match=said):
        find_task(env_id)


def test_episode_limits_come_from_the_registry(task):
    assert find_task("Pendulum-v1").episode_limit == 200
    assert task.episode_limit is None
