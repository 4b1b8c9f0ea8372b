"""Permutation tests over episodes: the level holds whatever rows of an episode have in common."""

import numpy as np

from phyb.deploy.compare import LEAST_EFFECT, LEVEL, compare
from phyb.deploy.ground import Feature, Measured, Topic

FEATURES = [
    Feature("range", "up", True),
    Feature("errors", "either", False),
    Feature("behaviour", "other topic", False),
]
TOPICS: tuple[Topic, ...] = ("range", "errors")


def episodes(rng, count, length=20, shift=(0.0, 0.0, 0.0), common=1.0):
    """Rows that have most in common with those of their episode, with heavy tails."""
    episode = np.repeat(np.arange(count), length)
    values = common * rng.standard_t(3, (count, 3))[episode] + 0.3 * rng.standard_t(3, (len(episode), 3))
    return Measured(FEATURES, values + np.array(shift), episode)


def alarms(rng, tries, old, new, shift=(0.0, 0.0, 0.0)):
    found = (compare(episodes(rng, old), episodes(rng, new, shift=shift), TOPICS) for _ in range(tries))
    return sum(any(each.alarm for each in result.differences) for result in found)


def test_alarms_are_rare_where_nothing_differs():
    # 1 % of 200 is 2; that a level of 5 % gave no more than 6 would be a matter of 1 in 10. Rows taken one by one, as
    # if they were independent, would alarm nearly always.
    assert alarms(np.random.default_rng(0), 200, 30, 12) <= 6


def test_what_differs_is_found_in_the_directions_that_count():
    rng = np.random.default_rng(1)
    assert alarms(rng, 20, 60, 40, shift=(2.0, 0.0, 0.0)) >= 19
    assert alarms(rng, 20, 60, 40, shift=(0.0, -2.0, 0.0)) >= 19
    assert alarms(rng, 20, 60, 40, shift=(-2.0, 0.0, 0.0)) <= 2
    assert alarms(rng, 20, 60, 40, shift=(0.0, 0.0, 5.0)) <= 2  # another topic than was asked for


def test_a_certain_but_tiny_difference_is_no_alarm():
    rng = np.random.default_rng(2)
    quiet = {"common": 0.01, "length": 50}
    found = compare(episodes(rng, 200, **quiet), episodes(rng, 200, shift=(0.04, 0.0, 0.0), **quiet), TOPICS)
    worst = found.worst("range")
    assert worst is not None
    assert worst.p <= LEVEL
    assert 0 < worst.effect < LEAST_EFFECT
    assert not worst.alarm


def test_the_level_holds_for_all_features_together():
    """A feature has a larger p beside others than alone."""
    rng, p = np.random.default_rng(3), []
    for _ in range(10):
        old, new = episodes(rng, 40), episodes(rng, 20)
        p.append([compare(old, new, topics).differences[0].p for topics in (TOPICS[:1], TOPICS)])
    alone, beside = np.array(p).T
    assert np.all(beside > alone - 0.02)
    assert beside.mean() > alone.mean() + 0.05


def test_few_long_episodes_are_cut_into_blocks_and_too_few_rows_tell_nothing():
    rng = np.random.default_rng(4)
    long = compare(episodes(rng, 2, 1000, common=0.0), episodes(rng, 1, 1000, (1.0, 0.0, 0.0), common=0.0), TOPICS)
    assert (long.block, long.old_units, long.new_units) == (50, 40, 20)
    assert long.can_tell
    worst = long.worst("range")
    assert worst is not None
    assert worst.alarm
    short = compare(episodes(rng, 2, 10), episodes(rng, 1, 3), TOPICS)
    assert not short.can_tell
    assert (short.old_units, short.new_units) == (2, 1)
    assert not any(each.alarm for each in short.differences)
