"""When a pool is good enough, and whether it had settled: small cases with known answers."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from phyb.dynamics.fit import HoldoutCheck, PoolConfig
from phyb.errors import PoorPoolError
from phyb.world.verdict import how_training_ended, in_words, overall_share, refuse_poor_pool

TEN_LOOKS = PoolConfig(model_steps=100, model_check_every=10)


def curve(losses, still=0.0):
    """Looks whose loss is that of the moving outputs plus a part of outputs that never change."""
    return [HoldoutCheck(10 * (place + 1), loss - still * place, loss) for place, loss in enumerate(map(float, losses))]


def dimension(share: float | None, *, trivial=1.0, exact=False, finite=True) -> Any:
    rmse = None if not finite else 0.0 if share is None else trivial * math.sqrt(1.0 - share)
    return {
        "name": f"number {share}", "share_explained": share, "trivial_rmse": trivial, "pool_rmse": rmse, "exact": exact,
        "standardised_squared_error": 1.0,
    }  # fmt: skip


def test_a_curve_that_is_flat_from_its_middle_on_has_settled_though_its_steps_ran_out():
    ended = how_training_ended(curve([5, 4, 3, 2, 1, 1, 1, 1, 1, 1]), TEN_LOOKS, 4)
    assert ended == {"steps_ran_out": True, "late_gain": 0.0, "still_improving": False}


def test_the_late_gain_is_the_fall_of_the_typical_error_in_the_second_half():
    gain = 4 * math.log(2.0)  # each of four outputs ends with half the error it had in the middle
    ended = how_training_ended(curve(np.linspace(2 * gain, 0, 11)[1:]), TEN_LOOKS, 4)
    assert ended["late_gain"] == pytest.approx(0.5)
    assert ended["still_improving"] is True


def test_a_flat_end_does_not_hide_that_the_second_half_still_gained():
    falling_then_flat = [9, 8, 7, 6, 5, 4, 3.2, 3.1, 3.1, 3.1]
    assert how_training_ended(curve(falling_then_flat), TEN_LOOKS, 4)["still_improving"] is True


def test_outputs_that_never_change_do_not_count_as_improvement():
    ended = how_training_ended(curve([3, 2, 1, 1, 1, 1, 1, 1, 1, 1], still=7.0), TEN_LOOKS, 4)
    assert ended["still_improving"] is False


def test_members_that_stopped_by_themselves_had_settled():
    ended = how_training_ended(curve([3, 2, 1, 1, 1]), TEN_LOOKS, 4)
    assert ended == {"steps_ran_out": False, "late_gain": None, "still_improving": False}


def test_groups_trained_one_after_the_other_are_told_apart():
    settled, improving = [5, 1, 1, 1, 1, 1, 1, 1, 1, 1], [9, 8, 7, 6, 5, 4, 3, 2, 1, 0]
    both = how_training_ended(curve([*improving, *improving]), TEN_LOOKS, 4)
    assert both["late_gain"] == pytest.approx(how_training_ended(curve(improving), TEN_LOOKS, 4)["late_gain"])
    early_then_settled = how_training_ended(curve([4, 3, 3, *settled]), TEN_LOOKS, 4)
    assert early_then_settled == {"steps_ran_out": True, "late_gain": 0.0, "still_improving": False}


@pytest.mark.parametrize("looks", [[(10, 1.0)], [(10, 3.0), (20, 1.0)]])
def test_what_an_earlier_version_or_a_single_look_does_not_tell_is_not_known(looks):
    config = PoolConfig(model_steps=10 * len(looks), model_check_every=10)
    ended = how_training_ended([HoldoutCheck.read(list(look)) for look in looks], config, 4)
    assert ended == {"steps_ran_out": True, "late_gain": None, "still_improving": None}


def test_the_share_counts_what_had_to_be_learned():
    assert overall_share([dimension(0.5), dimension(0.1)]) == pytest.approx(0.3)
    # A clock is known without training, a column that stands still is no news.
    clock, still = dimension(1.0, exact=True), dimension(None, trivial=0.0)
    assert overall_share([clock, still, dimension(-0.2)]) == pytest.approx(-0.2)
    assert overall_share([clock, still]) == 1.0
    assert overall_share([still]) is None
    # One number that hardly ever moves, or is not finite, does not decide alone.
    assert overall_share([dimension(-500.0), dimension(0.9), dimension(0.9)]) == pytest.approx(0.8 / 3)
    assert overall_share([dimension(None, finite=False)]) == -1.0


@given(st.lists(st.floats(-1e6, 1.0), min_size=1, max_size=8))
def test_the_share_lies_between_minus_one_and_one_and_is_positive_if_all_are(shares):
    found = overall_share([dimension(share) for share in shares])
    assert found is not None
    assert -1.0 <= found <= 1.0
    assert found > 0.0 or min(shares) <= 0.0


def found(shares, improving=False) -> Any:
    dimensions = [dimension(share) for share in shares]
    share = overall_share(dimensions)
    training = {"steps_ran_out": True, "late_gain": 0.3, "still_improving": improving}
    return {
        "rows": 1234, "share_explained": share, "better_than_trivial": share is None or share > 0, "training": training,
        "dimensions": dimensions,
    }  # fmt: skip


def test_a_poor_pool_is_refused_with_its_worst_numbers_and_what_to_do():
    refuse_poor_pool(found([0.5, -0.2]))
    with pytest.raises(PoorPoolError) as refusal:
        refuse_poor_pool(found([0.1, -3.0, -0.44, -0.21], improving=True))
    text = str(refusal.value)
    assert "1,234 hold-out rows it explains -38.8 %" in text
    assert text.index("number -3.0 (error 2 times") < text.index("number -0.44 (error 1.2 times")
    assert "number 0.1" not in text
    assert "it was still improving" in text
    for advice in ("--model-steps", "phyb data describe", "--accept-poor-pool", "--out"):
        assert advice in text
    assert refusal.value.exit_code == 2


def rollouts(mean, trivial) -> Any:
    return {"lengths": [1, 5, 20], "overall": {"mean": mean, "trivial": trivial}}


def words(mean, trivial):
    return " ".join(in_words(0.5, [dimension(0.5)], rollouts(mean, trivial), None))


def test_the_words_say_from_where_on_rollouts_mislead():
    assert "no worse than that guess up to 20 steps" in words([0.1, 0.5, 0.9], [1.0, 1.0, 1.0])
    assert "From 5 steps on" in words([0.1, 1.5, 9.9], [1.0, 1.0, 1.0])
    assert "From the first step on" in words([1.1, 1.5, None], [1.0, 1.0, 1.0])
    assert "From 20 steps on" in words([0.1, 0.2, None], [1.0, 1.0, 1.0])
    assert "rollouts" not in words([None] * 3, [None] * 3)
