"""What the numbers of `diagnose` mean in words, and when a pool is too poor to train a policy on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypedDict

import numpy as np

from phyb.dynamics.fit import HoldoutCheck, PoolConfig
from phyb.errors import PoorPoolError

if TYPE_CHECKING:
    from phyb.world.diagnose import Diagnostics, OneStep, Rollouts

SETTLED = 0.02
"""A pool whose typical error fell by less than this share in the second half of its steps has settled."""
OVER_CONFIDENT = 1.5
"""A mean squared error above this many predicted variances is called over-confident."""


class Training(TypedDict):
    """How the training of a pool ended."""

    steps_ran_out: bool
    """Some members used all their steps; otherwise all of them stopped because hold-out loss no longer improved."""
    late_gain: float | None
    """Share by which the typical error of one number fell in the second half of the steps of those members."""
    still_improving: bool | None
    """They ran out of steps, and `late_gain` is above 2 %; None where that is not known."""


def how_training_ended(curve: Sequence[HoldoutCheck], config: PoolConfig, moving_outputs: int) -> Training:
    """Whether hold-out loss had settled when training ended.

    The loss is a sum of -log p over the outputs that move, so that a fall by g nats in all makes the predicted error of
    one of D outputs smaller by the factor exp(-g / D), in the geometric mean. The gain is taken over the second half of
    the steps, and not over the last quarter: the optimiser's steps shrink by a cosine, so that every curve is flat at
    its end, also that of a pool with far too few steps. A pool that had settled gains next to nothing from its middle
    on; what smaller steps alone gain there is below 1 %. `curve` has the looks of one group of members after the other.
    """
    looks = -(-config.model_steps // config.model_check_every)
    groups: list[list[HoldoutCheck]] = []
    for look in curve:
        # Best losses never rise inside a group.
        if not groups or len(groups[-1]) == looks or look.loss > groups[-1][-1].loss:
            groups.append([])
        groups[-1].append(look)
    ran_out = [group for group in groups if len(group) == looks]
    if not ran_out:
        return {"steps_ran_out": False, "late_gain": None, "still_improving": False}
    gain = np.mean([group[(looks - 1) // 2].moving_loss - group[-1].moving_loss for group in ran_out])
    late_gain = 1.0 - math.exp(-max(gain, 0.0) / max(1, moving_outputs)) if looks > 1 and math.isfinite(gain) else None
    improving = None if late_gain is None else late_gain > SETTLED
    return {"steps_ran_out": True, "late_gain": late_gain, "still_improving": improving}


def overall_share(dimensions: Sequence[OneStep]) -> float | None:
    """The share of the trivial error that the pool explains one step ahead, over the numbers it had to learn.

    The mean over numbers of 1 - (pool / trivial)^2, each counted as no worse than -1, so that a number that moves once
    in a thousand rows cannot decide alone. Numbers that the trivial predictor gets right do not count. Numbers that the
    pool gets exactly right (a clock: its change is constant, and known without any training) count only where there
    are no others. None where nothing moves.
    """
    moving = [each for each in dimensions if each["share_explained"] is not None or each["pool_rmse"] is None]
    learned = [each for each in moving if not each["exact"]] or moving
    return float(np.mean([max(-1.0, _share(each)) for each in learned])) if learned else None


def _share(dimension: OneStep) -> float:
    share = dimension["share_explained"]
    return -math.inf if share is None else share  # None: the pool's error is not finite


def in_words(
    share: float | None, dimensions: Sequence[OneStep], rollouts: Rollouts, training: Training | None
) -> list[str]:
    """What the numbers mean: one sentence each about one step, calibration, rollouts and the end of training."""
    if share is None:
        first = "Nothing moves in the hold-out rows, so that there was nothing to learn."
    elif share > 0.0:
        first = (
            f"One step ahead the pool removes {100 * share:.1f} % of the squared error of a guess that nothing changes."
        )
    else:
        first = "One step ahead the pool is no better than a guess that nothing changes."
    words = [first]
    judged = [each for each in dimensions if each["standardised_squared_error"] is not None]
    over = [each["name"] for each in judged if (each["standardised_squared_error"] or 0.0) > OVER_CONFIDENT]
    if judged:
        about = ", ".join(over[:3]) + (f" and {len(over) - 3} more" if len(over) > 3 else "")
        words.append(f"It is over-confident about {about}." if over else "It is nowhere over-confident.")
    words += _rollouts_in_words(rollouts)
    if training is not None:
        words.append(_training_in_words(training))
    return words


def _rollouts_in_words(rollouts: Rollouts) -> list[str]:
    overall = rollouts["overall"]
    triples = zip(rollouts["lengths"], overall["mean"], overall["trivial"], strict=True)
    known = [(length, mean, trivial) for length, mean, trivial in triples if trivial is not None]
    lost = [length for length, mean, trivial in known if mean is None or mean > trivial]
    if lost:
        start = "the first step" if lost[0] == 1 else f"{lost[0]} steps"
        return [f"From {start} on its rollouts are worse than that guess: imagination that far misleads."]
    return [f"Its rollouts are no worse than that guess up to {known[-1][0]} steps, the most tried."] if known else []


def _training_in_words(training: Training) -> str:
    if not training["steps_ran_out"]:
        return "Training went on until hold-out loss stopped improving."
    if training["still_improving"] is None:
        return "Its steps ran out; whether it was still improving then is not known."
    fell = f"in their second half the typical error fell by {100 * (training['late_gain'] or 0.0):.1f} %"
    if training["still_improving"]:
        return f"It was still improving when its steps ran out ({fell}): raise --model-steps for a better one."
    return f"It had settled when its steps ran out ({fell})."


def refuse_poor_pool(found: Diagnostics) -> None:
    """Stop before a policy is trained on a pool that knows no more than a guess that nothing changes.

    Raises:
        PoorPoolError: names the share explained, the worst numbers and what to do.
    """
    if found["better_than_trivial"]:
        return
    moving = [each for each in found["dimensions"] if each["trivial_rmse"] and not each["exact"]]
    worst = sorted(moving, key=_share)[:3]
    training = found["training"]
    improving = training is not None and training["still_improving"]
    raise PoorPoolError(
        f"The pool is no better than a guess that nothing changes: on {found['rows']:,} hold-out rows it explains "
        f"{100 * (found['share_explained'] or 0.0):.1f} % of what happens one step ahead. "
        f"Worst: {', '.join(map(_ratio, worst))}. A policy trained on it would learn nothing about the world.\n"
        f"Train it longer with --model-steps{' (it was still improving)' if improving else ''}, or otherwise with "
        "--model-learning-rate, --model-weight-decay or --model-hidden; and look at the log with: phyb data describe "
        "FILE\nTo go on all the same, add --accept-poor-pool and choose another folder with --out; the pool is kept in "
        "the cache."
    )


def _ratio(dimension: OneStep) -> str:
    pool, trivial = dimension["pool_rmse"], dimension["trivial_rmse"]
    if pool is None or not trivial:
        return f"{dimension['name']} (error not finite)"
    return f"{dimension['name']} (error {pool / trivial:.3g} times that of the guess)"
