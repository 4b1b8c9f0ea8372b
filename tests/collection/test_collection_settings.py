import pytest

from phyb.collection.settings import CollectConfig
from phyb.fields import check


@pytest.mark.parametrize(("limit", "length"), [(200, 1000), (1000, 1000), (300, 1200), (5000, 5000), (None, 1000)])
def test_rounds_hold_whole_episodes(limit, length):
    assert CollectConfig(steps=100_000).rounds(limit)[0] == length


@pytest.mark.parametrize(("steps", "each"), [(800, 400), (801, 401), (1, 1), (1000, 500)])
def test_rounds_add_up_to_the_steps_asked_for(steps, each):
    rounds = CollectConfig(steps=steps, copies=2, round_steps=100).rounds(None)
    assert sum(rounds) == each
    assert all(0 < length <= 100 for length in rounds)


@pytest.mark.parametrize("wrong", [{"steps": 0}, {"copies": 0}, {"medium_share": 1.0}, {"round_steps": 0}])
def test_settings_that_cannot_be_are_refused(wrong):
    (found,) = check(CollectConfig(**wrong))
    assert found.startswith(next(iter(wrong)))
