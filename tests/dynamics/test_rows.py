"""The rows models are trained on: whole episodes held out, nothing lost."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phyb.data.log import Log
from phyb.dynamics.rows import split_rows


@st.composite
def episode_lengths(draw):
    return draw(st.lists(st.integers(1, 9), min_size=1, max_size=30))


def log_of(lengths):
    rows = sum(lengths)
    ends = np.zeros(rows, bool)
    ends[np.cumsum(lengths) - 1] = True
    zeros = np.zeros((rows, 1), np.float32)
    bound = np.ones(1, np.float32)
    return Log(zeros, zeros, zeros[:, 0], zeros, ends, np.zeros(rows, bool), -bound, bound)


@given(lengths=episode_lengths(), fraction=st.floats(0.05, 0.5), seed=st.integers(0, 100))
@settings(max_examples=100, deadline=None)
def test_hold_out_rows_never_overlap_training_and_whole_episodes_stay_together(lengths, fraction, seed):
    log = log_of(lengths)
    train, holdout = split_rows(log, fraction, seed)
    assert len(train) > 0
    assert len(holdout) > 0
    if len(log) == 1:
        return
    np.testing.assert_array_equal(np.sort(np.concatenate([train, holdout])), np.arange(len(log)))
    if len(lengths) >= 5:
        episode = log.episode_of_row
        assert not set(episode[train]) & set(episode[holdout])
        held = len(set(episode[holdout]))
        assert held == pytest.approx(fraction * len(lengths), abs=1.0)


def test_another_seed_holds_out_other_episodes():
    log = log_of([3] * 40)
    np.testing.assert_array_equal(split_rows(log, 0.2, 1)[1], split_rows(log, 0.2, 1)[1])
    assert set(split_rows(log, 0.2, 1)[1]) != set(split_rows(log, 0.2, 2)[1])


@given(lengths=episode_lengths(), seed=st.integers(0, 100))
@settings(max_examples=60, deadline=None)
def test_steps_before_count_back_to_the_first_row_of_an_episode_or_a_gap(lengths, seed):
    log = log_of(lengths)
    np.testing.assert_array_equal(log.steps_before(), np.concatenate([np.arange(length) for length in lengths]))
    chosen = np.flatnonzero(np.random.default_rng(seed).random(len(log)) < 0.7)
    if len(chosen) == 0:
        return
    episode, held = log.episode_of_row, set(chosen.tolist())
    for row, found in zip(chosen, log.steps_before(chosen), strict=True):
        back = 0
        while row - back - 1 in held and episode[row - back - 1] == episode[row]:
            back += 1
        assert found == back
