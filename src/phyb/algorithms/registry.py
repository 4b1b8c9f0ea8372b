"""Every algorithm by its name. Nothing is imported until it is asked for.

An algorithm is one file: its settings, `init`, `update`, `policy`. A line here makes it known to the command line, the
reports and the tests that run over all of them. Whoever does not want to touch this file names the class itself, as
package.module:Class; `bc.py` is the shortest example.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, NamedTuple

from phyb.errors import DataError, UsageError

if TYPE_CHECKING:
    from phyb.algorithms.base import Algorithm


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


ALGORITHMS: dict[str, Entry] = {
    "phyb": Entry(
        "PhyB",
        "believe the models that promise least, improve the policy by mirror steps against that belief",
        "Regularized Offline Policy Optimization with Posterior Hybrid Bayesian Belief, 2026",
        "phyb.algorithms.phyb:PhyB",
    ),
    "phyb-search": Entry(
        "PhyB-search",
        "evolve whole policies by episodes in the models that promise least; ours, not in the paper",
        "model-based policy search with PhyB's belief and mirror step, this library",
        "phyb.algorithms.phyb_search:PhyBSearch",
    ),
    "pmdb": Entry(
        "PMDB",
        "believe the k-th worst of the drawn models, improve the policy against it",
        "Model-Based Offline Reinforcement Learning with Pessimism-Modulated Dynamics Belief, 2022",
        "phyb.algorithms.pmdb:PMDB",
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
    ),
    "combo": Entry(
        "COMBO",
        "CQL that also learns from imagined rollouts, and presses values down there too",
        "COMBO: Conservative Offline Model-Based Policy Optimization, 2021",
        "phyb.algorithms.combo:COMBO",
    ),
    "1r2r": Entry(
        "1R2R",
        "soft actor-critic on imagined rollouts that lean to bad outcomes, whether by chance or by ignorance",
        "One Risk to Rule Them All: A Risk-Sensitive Perspective on Model-Based Offline RL, 2023",
        "phyb.algorithms.one_r_two_r:OneRTwoR",
    ),
    "rambo": Entry(
        "RAMBO",
        "soft actor-critic against models that turn against it as far as the log allows",
        "RAMBO-RL: Robust Adversarial Model-Based Offline Reinforcement Learning, 2022",
        "phyb.algorithms.rambo:RAMBO",
    ),
}
"""The algorithms of the library."""


def title_of(name: str) -> str:
    """How the paper of an algorithm spells it; the name itself for one that is not of the library."""
    return ALGORITHMS[name].title if name in ALGORITHMS else name


def load(name: str) -> type[Algorithm[Any, Any]]:
    """The class of an algorithm of the library; nothing else is ever imported, whatever a file may say.

    Raises:
        DataError: there is no such algorithm.
    """
    if name not in ALGORITHMS:
        raise DataError(f"algorithm: found {name!r:.60}, expected one of {', '.join(ALGORITHMS)}.")
    module, _, kind = ALGORITHMS[name].home.partition(":")
    return getattr(importlib.import_module(module), kind)


def find(word: str) -> type[Algorithm[Any, Any]]:
    """The class a user asks for: an algorithm of the library, or package.module:Class, whose module is imported.

    Raises:
        UsageError: there is no such algorithm, or no such class.
    """
    if word in ALGORITHMS:
        return load(word)
    from phyb.algorithms.base import Algorithm
    from phyb.envs.functions import is_function_name, load_function

    if not is_function_name(word):
        raise UsageError(
            f"--algorithm {word}: there is no such algorithm. Known are {', '.join(ALGORITHMS)}, or name a class of "
            "your own as package.module:Class. What they do is listed by: phyb algorithms"
        )
    found: Any = load_function(word, "--algorithm")
    if not (isinstance(found, type) and issubclass(found, Algorithm)):
        raise UsageError(f"--algorithm {word}: is not a class made from phyb.algorithms.base.Algorithm.")
    return found
