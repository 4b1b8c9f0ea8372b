"""Every algorithm by its name. Nothing is imported until it is asked for.

An algorithm is one file: its settings, `init`, `update`, `policy`. A line here makes it known to the command line, the
reports and the tests that run over all of them. Whoever does not want to touch this file names the class itself, as
package.module:Class, or calls `register_algorithm`; `bc.py` is the shortest example. See docs/extending.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from phyb.registry import Registry

if TYPE_CHECKING:
    from phyb.algorithms.base import Algorithm


Family = Literal["model-free", "model-based"]


class Entry(NamedTuple):
    """What is said about an algorithm before it is loaded."""

    title: str
    """How its paper spells it."""
    line: str
    """What it does, in one line."""
    reference: str
    """Paper and year."""
    home: str
    """Where its class is, as package.module:Class."""
    family: Family = "model-free"
    """model-based: it learns models of the environment, those of the pool or its own."""


ALGORITHMS: dict[str, Entry] = {
    "phyb": Entry(
        "PhyB",
        "believe the models that promise least, improve the policy by mirror steps against that belief",
        "Regularized Offline Policy Optimization with Posterior Hybrid Bayesian Belief, 2026",
        "phyb.algorithms.phyb:PhyB",
        "model-based",
    ),
    "phyb-search": Entry(
        "PhyB-search",
        "evolve whole policies by episodes in the models that promise least; ours, not in the paper",
        "model-based policy search with PhyB's belief and mirror step, this library",
        "phyb.algorithms.phyb_search:PhyBSearch",
        "model-based",
    ),
    "pmdb": Entry(
        "PMDB",
        "believe the k-th worst of the drawn models, improve the policy against it",
        "Model-Based Offline Reinforcement Learning with Pessimism-Modulated Dynamics Belief, 2022",
        "phyb.algorithms.pmdb:PMDB",
        "model-based",
    ),
    "bc": Entry(
        "BC",
        "behaviour cloning: do what the log did, by least squares",
        "ALVINN: An Autonomous Land Vehicle in a Neural Network, 1989",
        "phyb.algorithms.bc:BC",
    ),
    "td3bc": Entry(
        "TD3+BC",
        "a deterministic actor-critic that is also asked to imitate the log",
        "A Minimalist Approach to Offline Reinforcement Learning, 2021",
        "phyb.algorithms.td3bc:TD3BC",
    ),
    "dmg": Entry(
        "DMG",
        "TD3 that backs up mostly values of logged actions, and imitates the better ones",
        "Doubly Mild Generalization for Offline Reinforcement Learning, 2024",
        "phyb.algorithms.dmg:DMG",
    ),
    "fql": Entry(
        "FQL",
        "a flow imitates the log, modes and all; a one-step policy imitates the flow and follows critics",
        "Flow Q-Learning, 2025",
        "phyb.algorithms.fql:FQL",
    ),
    "iql": Entry(
        "IQL",
        "value the better logged actions by an expectile, and imitate them; never asks about other actions",
        "Offline Reinforcement Learning with Implicit Q-Learning, 2022",
        "phyb.algorithms.iql:IQL",
    ),
    "cql": Entry(
        "CQL",
        "soft actor-critic whose critics are pressed down where the log is silent",
        "Conservative Q-Learning for Offline Reinforcement Learning, 2020",
        "phyb.algorithms.cql:CQL",
    ),
    "epq": Entry(
        "EPQ",
        "CQL that presses values down only where the policy leaves the log, and counts the better rows more",
        "Exclusively Penalized Q-learning for Offline Reinforcement Learning, 2024",
        "phyb.algorithms.epq:EPQ",
    ),
    "oraac": Entry(
        "ORAAC",
        "stay near the log, and maximise the mean of the worst outcomes instead of all of them",
        "Risk-Averse Offline Reinforcement Learning, 2021",
        "phyb.algorithms.oraac:ORAAC",
    ),
    "mopo": Entry(
        "MOPO",
        "soft actor-critic on imagined rollouts whose rewards are lowered by how unsure the models are",
        "MOPO: Model-based Offline Policy Optimization, 2020",
        "phyb.algorithms.mopo:MOPO",
        "model-based",
    ),
    "combo": Entry(
        "COMBO",
        "CQL that also learns from imagined rollouts, and presses values down there too",
        "COMBO: Conservative Offline Model-Based Policy Optimization, 2021",
        "phyb.algorithms.combo:COMBO",
        "model-based",
    ),
    "1r2r": Entry(
        "1R2R",
        "soft actor-critic on imagined rollouts that lean to bad outcomes, whether by chance or by ignorance",
        "One Risk to Rule Them All: A Risk-Sensitive Perspective on Model-Based Offline RL, 2023",
        "phyb.algorithms.one_r_two_r:OneRTwoR",
        "model-based",
    ),
    "rambo": Entry(
        "RAMBO",
        "soft actor-critic against models that turn against it as far as the log allows",
        "RAMBO-RL: Robust Adversarial Model-Based Offline Reinforcement Learning, 2022",
        "phyb.algorithms.rambo:RAMBO",
        "model-based",
    ),
    "adm": Entry(
        "ADM",
        "soft actor-critic on imagined rollouts, paid less where looking back further predicts something else",
        "Any-step Dynamics Model Improves Future Predictions for Online and Offline Reinforcement Learning, 2025",
        "phyb.algorithms.adm:ADM",
        "model-based",
    ),
    "mobile": Entry(
        "MOBILE",
        "soft actor-critic on imagined rollouts, with values lowered where the models do not agree about them",
        "Model-Bellman Inconsistency for Model-based Offline Reinforcement Learning, 2023",
        "phyb.algorithms.mobile:MOBILE",
        "model-based",
    ),
    "morel": Entry(
        "MOReL",
        "soft actor-critic in a pessimistic world: rollouts halt at a loss where two models lie far apart",
        "MOReL: Model-Based Offline Reinforcement Learning, 2020",
        "phyb.algorithms.morel:MOReL",
        "model-based",
    ),
    "orpo": Entry(
        "ORPO",
        "an optimist explores the models, and TD3+BC learns from its rollouts with rewards lowered where they differ",
        "Optimistic Model Rollouts for Pessimistic Offline Policy Optimization, 2024",
        "phyb.algorithms.orpo:ORPO",
        "model-based",
    ),
}
"""What is said about each algorithm: those of the library, and those that were registered."""

_CLASSES: Registry[type[Algorithm[Any, Any]]] = Registry(
    "algorithm", {name: entry.home for name, entry in ALGORITHMS.items()}, base="phyb.algorithms.base:Algorithm"
)


def register_algorithm(
    name: str,
    home: str | type[Algorithm[Any, Any]],
    *,
    title: str = "",
    line: str = "",
    reference: str = "",
    family: Family = "model-free",
) -> None:
    """Make an algorithm of one's own known by a name.

    Args:
        name: on the command line and in run folders.
        home: its class, or where that is: "package.module:Class".
        title: how reports spell it; by default the name.
        line: what it does, for `phyb algorithms`.
        reference: paper and year.
        family: model-based if it learns models of its own; one that asks for a pool need not say it.

    Raises:
        UsageError: the name stands for another algorithm.
    """
    _CLASSES.register(name, home)
    where = home if isinstance(home, str) else f"{home.__module__}:{home.__qualname__}"
    ALGORITHMS.setdefault(name, Entry(title or name, line, reference, where, family))


def title_of(name: str) -> str:
    """How the paper of an algorithm spells it; the name itself for one that is not registered."""
    return ALGORITHMS[name].title if name in ALGORITHMS else name


word_of, load, find = _CLASSES.word, _CLASSES.load, _CLASSES.find
"""What files call an algorithm, the class that a file names, the class a user asks for, as in `phyb.registry`."""
