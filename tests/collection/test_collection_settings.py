import pytest

from phyb.collection.settings import CollectConfig


@pytest.mark.parametrize(("limit", "length"), [(200, 1000), (1000, 1000), (300, 1200), (5000, 5000), (None, 1000)])
def test_rounds_hold_whole_episodes(limit, length):
    assert CollectConfig(steps=100_000).schedule(limit).rounds[0] == length


@pytest.mark.parametrize(("steps", "rows"), [(800, 800), (801, 802), (1, 2), (1000, 1000)])
def test_rounds_add_up_to_the_steps_asked_for(steps, rows):
    schedule = CollectConfig(steps=steps, copies=2, round_steps=100).schedule(None)
    assert schedule.rows(len(schedule.rounds)) == rows
    assert all(0 < length <= 100 for length in schedule.rounds)
    assert schedule.rows(0) == 0


def test_updates_happen_in_rounds_shorter_than_a_turn():
    assert CollectConfig(round_steps=5, turn_steps=50).schedule(None).turn == 5


@pytest.mark.parametrize("wrong", [{"steps": 0}, {"copies": 0}, {"medium_share": 1.0}, {"round_steps": 0}])
def test_settings_that_cannot_be_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        CollectConfig(**wrong)
