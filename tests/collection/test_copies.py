from contextlib import closing

import counting
import jax
import numpy as np
import pytest

from phyb.collection.copies import Copies, RandomStreams, episode_returns, record
from phyb.errors import UsageError

counting.register()


def still(observations, step):
    return np.zeros((len(observations), 2))


@pytest.fixture
def copies():
    with closing(Copies(counting.ENV_ID, 2)) as copies:
        yield copies


@pytest.fixture
def task(copies):
    return copies.task


@pytest.fixture
def recorded(copies):
    return record(copies, 20, RandomStreams(0, 1), still, lambda rows: None)


def test_rows_lead_to_the_state_reached_and_go_on_from_the_state_after_the_reset(task, recorded):
    columns = task.columns(recorded)
    assert recorded.shape == (10, 2, task.width)
    np.testing.assert_array_equal(columns["observations"][:, 0, 1], [0, 1, 2, 0, 1, 2, 0, 1, 2, 0])
    np.testing.assert_array_equal(columns["next_observations"][:, 0, 1], [1, 2, 3, 1, 2, 3, 1, 2, 3, 1])
    np.testing.assert_array_equal(columns["next_observations"][:, 1, 0], columns["observations"][:, 1, 0])


def test_flags_are_the_simulators_and_terminated_wins(task, recorded):
    columns = task.columns(recorded)
    np.testing.assert_array_equal(np.flatnonzero(columns["terminated"][:, 0]), [2, 8])  # the third has both flags
    np.testing.assert_array_equal(np.flatnonzero(columns["truncated"][:, 0]), [5])


def test_actions_are_scaled_to_the_bounds_and_never_leave_them(task):
    np.testing.assert_allclose(task.scaled(np.array([[-1.0, -1.0], [0.0, 0.0], [1.0, 1.0]])), [[-1, 0], [0, 2], [1, 4]])
    many = task.scaled(np.random.default_rng(0).uniform(-1.0, 1.0, (1000, 2)).astype(np.float32) * 1.00001)
    assert (many >= task.action_low).all()
    assert (many <= task.action_high).all()


def test_chance_is_settled_by_seed_and_piece():
    def numbers(*piece):
        random = RandomStreams(*piece)
        key = jax.random.key_data(random.key).tolist()
        return [*random.environment_seeds(2), *random.generator.integers(2**31, size=2).tolist(), *key]

    assert numbers(7, 1, 2) == numbers(7, 1, 2)
    different = [numbers(7, 1, 2), numbers(7, 1, 3), numbers(7, 2, 2), numbers(8, 1, 2)]
    assert all(len(set(column)) == 4 for column in zip(*(row[:4] for row in different), strict=True))


def test_copies_get_seeds_of_their_own_and_a_reset_brings_everything_back():
    with closing(Copies("Pendulum-v1", 3)) as copies:
        copies.start(RandomStreams(0))
        assert len({tuple(row) for row in copies.observations.tolist()}) == 3
        rows = [copies.step(np.ones((3, 1))) for _ in range(5)]
        copies.start(RandomStreams(0))
        np.testing.assert_array_equal([copies.step(np.ones((3, 1))) for _ in range(5)], rows)


@pytest.mark.parametrize(("episodes", "played"), [(1, 2), (2, 2), (3, 4), (6, 6)])
def test_every_copy_plays_the_same_number_of_whole_episodes(copies, episodes, played):
    steps = []

    def act(observations, step):
        steps.append(step)
        return still(observations, step)

    returns = episode_returns(copies, episodes, RandomStreams(0), act)
    np.testing.assert_array_equal(returns, np.full(played, 6.0))
    assert steps == list(range(3 * played // 2))


def test_a_copy_that_is_done_waits_for_the_others(copies, monkeypatch):
    """One copy ends its episode twice while the other is in its first: what it earns after its own is not counted."""
    ends = iter(np.array([[0, 0], [1, 0], [1, 0], [0, 1]]))
    columns = copies.task.columns
    monkeypatch.setattr(
        type(copies.task), "columns", lambda task, rows: columns(rows) | {"terminated": next(ends), "truncated": 0}
    )
    np.testing.assert_array_equal(episode_returns(copies, 2, RandomStreams(0), still), [1 + 2, 1 + 2 + 3 + 1])


@pytest.mark.parametrize(
    ("env_id", "message"),
    [("CartPole-v1", "actions"), ("NoSuch-v0", "NoSuch"), ("no_such_module:X-v0", "no_such_module")],
)
def test_what_cannot_be_recorded_is_refused(env_id, message):
    with pytest.raises(UsageError, match=message):
        Copies(env_id, 1)


def test_episode_limits_come_from_the_registry(task):
    with closing(Copies("Pendulum-v1", 1)) as pendulum:
        assert pendulum.task.episode_limit == 200
    assert task.episode_limit is None
