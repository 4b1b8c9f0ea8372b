"""Table 2 of the paper, liquidation, and the systems of its other tables there; two policies are known exactly."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from phyb.envs.liquidation import ENV_ID
from phyb.envs.oracle import rule_return, solve
from phyb.envs.rules import RULES, as_policy
from phyb.envs.tasks import find_task, normalized_score
from phyb.evaluation.returns import cvar, episode_returns
from phyb.reproduce.table import Reference, Table

_REFERENCE_EPISODES = 20_000


@functools.cache
def references() -> tuple[Reference, ...]:
    """The optimum and the policy that made the log: exact scores, and their CVaR by simulation."""
    task, oracle, behaviour = find_task(ENV_ID), solve(), RULES["behaviour"]
    assert task is not None

    def reference(title: str, value: float, act: Callable[[np.ndarray], np.ndarray]) -> Reference:
        returns = episode_returns(act, ENV_ID, _REFERENCE_EPISODES, seed=0)
        score = normalized_score(task, value)
        assert score is not None
        return Reference(title, score, cvar(returns))

    return (
        reference("exact optimum", oracle.optimal_return, oracle.action),
        reference("behaviour (the log)", rule_return(behaviour), as_policy(behaviour, seed=0)),
    )


TABLE2 = Table(
    name="table2",
    title="Table 2, liquidation",
    task="liquidation",
    rows=("phyb", "pmdb", "1r2r", "oraac", "rambo", "cql", "iql", "td3bc", "mopo", "combo", "bc"),
    seeds=4,
    note="Score 0 is a return of 0, score 100 a return of 135. BC is not in the paper's table.",
    references=references,
)

OTHERS = Table(
    name="table2-others",
    title="Liquidation, systems of the paper's other tables",
    task="liquidation",
    rows=("phyb", "morel", "mobile", "adm", "orpo", "epq", "fql", "dmg", "bc"),
    seeds=4,
    note="Score 0 is a return of 0, score 100 a return of 135. The paper has none of these rows but PhyB's.",
    references=references,
)
