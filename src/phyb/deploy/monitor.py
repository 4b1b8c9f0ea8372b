"""Are newly logged rows still where the models know the world?"""

from __future__ import annotations

import os
from statistics import NormalDist
from typing import Any

import numpy as np
from jaxtyping import Float

from phyb.data.files import load_log
from phyb.data.log import Log
from phyb.deploy.compare import FEW_EPISODES, LEAST_EFFECT, LEVEL, Comparison, Difference, compare
from phyb.deploy.ground import Ground, Topic, check_sizes
from phyb.policy.policy import Policy
from phyb.training.records import number
from phyb.training.run import Run, open_run

SAME_ACTION = 0.01
"""Share of half the action range by which an action of the run's policy may be off in a log."""
OWN_SHARE = 0.9
"""Share of rows with its actions from which a log counts as earned by the run's policy."""
_WORDS: dict[Topic, tuple[str, str]] = {
    "range": ("rows outside the data's range", "The new rows leave the range of the data."),
    "disagreement": ("disagreement of the models", "The models disagree more than on the log."),
    "errors": (
        "one-step errors",
        "Outcomes are not what the models predict: another world, or models wrong here.",
    ),
    "behaviour": ("observations, actions, rewards", "The new rows come from another behaviour than the log."),
}


def monitor(
    run: Run | str | os.PathLike[str], new_log: Log | str | os.PathLike[str], *, seed: int = 0
) -> dict[str, Any]:
    """Compare a new log with the hold-out episodes of the run's own log; docs/deploy.md has the statistics.

    Args:
        run: a finished run, or its folder.
        new_log: the log to judge, or its file.
        seed: chooses the permutations.

    Returns:
        JSON: the `verdict` ("fine", "alarm" or "unclear", which means too few episodes to tell), the same in `words`,
        and per check the means on both sides, the effect and its p-value.

    Raises:
        UsageError: the logs are not of the same task.
        DataError: a log is missing or damaged.
    """
    run = run if isinstance(run, Run) else open_run(run)
    source = "the new log" if isinstance(new_log, Log) else str(new_log)
    new = new_log if isinstance(new_log, Log) else load_log(new_log)
    ground = Ground.of_run(run)
    check_sizes(ground, new, source)
    share = share_of_actions(run.policy, new)
    own = share >= OWN_SHARE
    topics: list[Topic] = ["range"] if ground.pool is None else ["range", "disagreement", "errors"]
    known, fresh = ground.measure(ground.log, ground.holdout), ground.measure(new)
    found = compare(known, fresh, topics if own else [*topics, "behaviour"], seed)
    earned = _earned(run, new) if own else None
    checks = [_check(found.worst(topic), topic) for topic in _WORDS if found.worst(topic) is not None]
    alarm = any(check["alarm"] for check in checks) or (earned is not None and earned["alarm"])
    verdict = "alarm" if alarm else "fine" if found.can_tell else "unclear"
    return {
        "format": 1,
        "verdict": verdict,
        "words": _in_words(verdict, found, checks, earned, own, share, ground.pool is not None),
        "earned_by_policy": bool(own),
        "share_of_policy_actions": share,
        "rows": {"new": len(fresh.episode), "holdout": len(known.episode)},
        "units": {"new": found.new_units, "holdout": found.old_units, "rows_per_block": found.block},
        "level": LEVEL,
        "least_effect": LEAST_EFFECT,
        "checks": checks,
        "return": earned,
    }


def share_of_actions(policy: Policy, log: Log) -> float:
    """Share of the rows of a log whose action is that of the policy."""
    rows = np.unique(np.linspace(0, len(log) - 1, 10_000).astype(int))
    wide = 0.5 * np.asarray(policy.action_high - policy.action_low)
    off = np.abs(policy.act(log.observations[rows]) - log.actions[rows]) / wide
    return float(np.mean(off.max(axis=1) <= SAME_ACTION))


def _check(found: Difference | None, topic: Topic) -> dict[str, Any]:
    assert found is not None
    return {
        "name": topic,
        "worst": found.feature.name,
        "holdout": found.old if topic != "disagreement" else float(np.exp(found.old)),
        "new": found.new if topic != "disagreement" else float(np.exp(found.new)),
        "effect": found.effect,
        "p": found.p,
        "alarm": found.alarm,
    }


def _earned(run: Run, log: Log) -> dict[str, Any] | None:
    """The returns of the new episodes beside the return under the belief, which should be a lower bound."""
    returns: Float[np.ndarray, " episodes"] = log.episode_returns()[: int((log.terminated | log.truncated).sum())]
    belief, error = (number(run.result.get(name)) for name in ("belief_return", "belief_std_error"))
    if belief is None or len(returns) < FEW_EPISODES:
        return None
    mean, own_error = float(returns.mean()), float(returns.std(ddof=1) / np.sqrt(len(returns)))
    spread = float(np.hypot(error or 0.0, own_error))
    p = NormalDist().cdf((mean - belief) / spread) if spread > 0 else float(mean >= belief)
    return {
        "episodes": len(returns),
        "mean": mean,
        "std_error": own_error,
        "belief": belief,
        "belief_std_error": error,
        "p": p,
        "alarm": p <= LEVEL,
    }


def _in_words(
    verdict: str,
    found: Comparison,
    checks: list[dict[str, Any]],
    earned: dict[str, Any] | None,
    own: bool,
    share: float,
    models: bool,
) -> list[str]:
    words = {
        "fine": "Fine: nothing differs from the hold-out episodes of the log.",
        "alarm": "Alarm: the new rows are not like those that the run knows.",
        "unclear": f"Unclear: {found.new_units} new against {found.old_units} hold-out episodes are too few to tell.",
    }
    said = [words[verdict]] + [
        f"{_WORDS[check['name']][1]} Most certain: {check['worst']}, mean {check['new']:.3g} against "
        f"{check['holdout']:.3g} ({check['effect']:+.2f} standard deviations, p = {check['p']:.4f})."
        for check in checks
        if check["alarm"]
    ]
    if earned is not None and earned["alarm"]:
        said.append(f"The policy earned {earned['mean']:.4g}, less than the {earned['belief']:.4g} under the belief.")
    by = "the run's policy; its behaviour need not be that of the log" if own else "another agent than the run's policy"
    said.append(f"Earned by {by}: {share:.0%} of the actions are the policy's.")
    if own and earned is None:
        said.append("Returns are not compared: there is no return under the belief, or there are too few episodes.")
    if not models:
        said.append("The run learned no models: disagreement, one-step errors and returns are not looked at.")
    if found.block is not None:
        said.append(
            f"There are few episodes, so blocks of {found.block} rows are compared. The level of the test holds only "
            "if rows farther apart have little to do with each other."
        )
    return said


def titles() -> dict[str, str]:
    """What the checks are called in tables."""
    return {name: words[0] for name, words in _WORDS.items()}
