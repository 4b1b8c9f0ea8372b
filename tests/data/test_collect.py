import json

import numpy as np
import pytest

from phyb.data.collect import collect_liquidation
from phyb.data.log import FIELDS
from phyb.envs.liquidation import DEFAULT_SPEC
from phyb.errors import UsageError


def test_columns_have_the_schema_of_a_log():
    log = collect_liquidation(5000, seed=0)
    shapes = {"observations": (5000, 3), "actions": (5000, 1), "next_observations": (5000, 3)}
    for name in FIELDS:
        column = getattr(log, name)
        assert column.shape == shapes.get(name, (5000,))
        assert column.dtype == (bool if name in ("terminated", "truncated") else np.float32)
    assert log.env_id == "phyb/Liquidation-v0"
    np.testing.assert_array_equal([log.action_low, log.action_high], [[-1.0], [1.0]])


def test_episodes_are_whole_and_connected():
    log = collect_liquidation(30_000, seed=1)
    inner = ~log.episode_ends[:-1]
    np.testing.assert_array_equal(log.next_observations[:-1][inner], log.observations[1:][inner])
    starts = log.observations[1:][~inner]
    np.testing.assert_array_equal(starts[:, 0], 0.0)
    np.testing.assert_array_equal(starts[:, 1], 100.0)
    np.testing.assert_array_equal(log.observations[0, :2], [0.0, 100.0])
    assert log.next_observations[:, 0].max() == 20.0


def test_rows_obey_the_equations_of_the_market():
    log = collect_liquidation(20_000, seed=2)
    fraction = np.clip(log.actions[:, 0], 0.0, 1.0)
    _, holding, price = log.observations.T
    np.testing.assert_allclose(log.rewards, fraction * holding * price, rtol=1e-5)
    np.testing.assert_allclose(log.next_observations[:, 1], (1 - fraction) * holding, rtol=1e-4, atol=1e-5)
    surprise = log.next_observations[:, 2] - (price + 0.05 * (1.5 - price))
    free = (log.next_observations[:, 2] > 0.0) & (price > 1.0)
    assert surprise[free].mean() == pytest.approx(0.0, abs=0.01)
    assert surprise[free].std() == pytest.approx(DEFAULT_SPEC.volatility, abs=0.01)


def test_the_behaviour_earns_what_the_paper_market_pays():
    log = collect_liquidation(100_000, seed=0)
    returns = log.episode_returns()[:-1]
    assert abs(returns.mean() - 98.94) < 4.0 * returns.std() / np.sqrt(len(returns)) + 0.1
    assert (log.rewards > 0).mean() == pytest.approx(0.2, abs=0.01)


def test_only_an_unfinished_last_episode_is_truncated():
    log = collect_liquidation(1000, seed=0)
    last_end = int(np.flatnonzero(log.terminated)[-1])
    assert not log.truncated[:-1].any()
    whole = collect_liquidation(last_end + 1, seed=0)
    assert whole.terminated[-1]
    assert not whole.truncated.any()
    cut = collect_liquidation(last_end, seed=0)
    assert cut.truncated[-1]
    assert not cut.terminated[-1]


def test_a_longer_log_begins_with_the_shorter_one():
    short, long = collect_liquidation(25_000, seed=4), collect_liquidation(45_000, seed=4)
    for name in set(FIELDS) - {"truncated"}:
        np.testing.assert_array_equal(getattr(short, name), getattr(long, name)[:25_000])


def test_the_seed_decides_everything():
    assert collect_liquidation(2000, 7).fingerprint() == collect_liquidation(2000, 7).fingerprint()
    assert collect_liquidation(2000, 7).fingerprint() != collect_liquidation(2000, 8).fingerprint()


def test_hold_encodings():
    negative, zero = (collect_liquidation(20_000, 0, encoding) for encoding in ("negative", "zero"))
    for name in set(FIELDS) - {"actions"}:
        np.testing.assert_array_equal(getattr(negative, name), getattr(zero, name))
    assert (zero.actions == 0.0).mean() == pytest.approx(0.8, abs=0.02)
    assert zero.actions.min() == 0.0
    held = negative.actions[zero.actions == 0.0]
    assert held.max() <= 0.0
    assert held.mean() == pytest.approx(-0.5, abs=0.02)
    sold = zero.actions[zero.actions > 0.0]
    assert sold.mean() == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize(("probability", "sells"), [(0.0, 1.0), (1.0, 0.0), (0.5, 0.5)])
def test_hold_probability(probability, sells):
    log = collect_liquidation(5000, 0, hold_probability=probability)
    assert (log.actions > 0.0).mean() == pytest.approx(sells, abs=0.03)


def test_provenance_is_complete_and_plain():
    provenance = collect_liquidation(10, 3, "zero", 0.7).provenance
    assert json.loads(json.dumps(dict(provenance))) == provenance
    assert provenance["seed"] == 3
    assert provenance["hold_encoding"] == "zero"
    assert provenance["hold_probability"] == 0.7
    assert provenance["spec"]["horizon"] == 20


def test_one_row_is_a_log():
    log = collect_liquidation(1, 0)
    assert len(log) == 1
    assert log.truncated[0] != log.terminated[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 0), "at least 1 transition"),
        ((10, -1), "seed"),
        ((10, 0, "nothing"), "unknown hold encoding 'nothing': choose 'negative' or 'zero'"),
        ((10, 0, "zero", 1.5), r"\[0, 1\], got 1.5"),
    ],
)
def test_impossible_requests_are_refused(arguments, message):
    with pytest.raises(UsageError, match=message):
        collect_liquidation(*arguments)
