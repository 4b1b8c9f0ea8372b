"""Do new episodes look like those of the log? Permutation tests over whole episodes, with one level for all features.

Rows of an episode are alike, so that rows cannot be compared as if each were a new piece of evidence. Episodes can: if
the same agent earned old and new ones in the same world, which of them are new is arbitrary. Every feature is averaged
over each episode, the difference of the means of new and old episodes is divided by the standard deviation of all, and
the largest such number over features is compared with what it would be for other choices of the new episodes. That is
exact for any distribution, and the level holds for all features together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from phyb.deploy.ground import Feature, Measured, Topic

PERMUTATIONS = 999
LEVEL = 0.01
"""Probability of an alarm, over all features together, where nothing differs."""
LEAST_EFFECT = 0.1
"""Differences of means below so many standard deviations of rows are no alarm, however certain they are."""
FEW_EPISODES = 8
"""With fewer on either side, episodes are cut into blocks."""
LEAST_UNITS = 5
"""With fewer episodes or blocks on either side nothing is said."""
_BLOCKS = 20
_SHORTEST_BLOCK = 10
_AT_ONCE = 111  # of which there are 9 times as many
_LEAST_STD = 0.1
"""Of features that are 0 or 1 and hardly ever 1: a share of one per cent more then counts as `LEAST_EFFECT`."""


class Difference(NamedTuple):
    """How one feature differs."""

    feature: Feature
    old: float
    """Mean over the log's hold-out episodes."""
    new: float
    effect: float
    """Difference in standard deviations of rows."""
    p: float
    """Probability of such a difference or a larger one of any feature, were nothing different."""
    alarm: bool


class Comparison(NamedTuple):
    """All differences, and what they were found on."""

    differences: list[Difference]
    old_units: int
    new_units: int
    block: int | None
    """Rows in one block; None where whole episodes were compared."""

    @property
    def can_tell(self) -> bool:
        """Whether there are enough episodes for an alarm."""
        return _enough(self.old_units, self.new_units)

    def worst(self, topic: Topic) -> Difference | None:
        """The most certain difference of a topic; among those, alarms first, then the largest."""
        found = [each for each in self.differences if each.feature.topic == topic]
        return min(found, key=lambda each: (not each.alarm, each.p, -abs(each.effect)), default=None)


def compare(old: Measured, new: Measured, topics: Sequence[Topic], seed: int = 0) -> Comparison:
    """Test the features of these topics together.

    Args:
        old: rows that nothing was trained on, of the behaviour and world that are known.
        new: rows to judge, with the same features.
        topics: what to look at; the level holds over all of it.
        seed: chooses the permutations.
    """
    chosen = np.array([feature.topic in topics for feature in old.features])
    features = [feature for feature, kept in zip(old.features, chosen, strict=True) if kept]
    block = _block_length(old, new)
    before, after = (_unit_means(each, chosen, block) for each in (old, new))
    rows_std = np.maximum(old.values[:, chosen].std(axis=0), _LEAST_STD)
    upwards = np.array([feature.upwards for feature in features])
    p = _p_values(before, after, upwards, np.random.default_rng(seed))
    means = before.mean(axis=0), after.mean(axis=0)
    effects = (means[1] - means[0]) / rows_std
    sizes = np.where(upwards, effects, np.abs(effects))
    alarms = (p <= LEVEL) & (sizes >= LEAST_EFFECT) & _enough(len(before), len(after))
    columns = (means[0].tolist(), means[1].tolist(), effects.tolist(), p.tolist(), alarms.tolist())
    found = [Difference(*each) for each in zip(features, *columns, strict=True)]
    return Comparison(found, len(before), len(after), block)


def _enough(old: int, new: int) -> bool:
    """Whether so many episodes or blocks can give a p as small as the level, and are more than a whim."""
    return min(old, new) >= LEAST_UNITS and math.comb(old + new, new) * LEVEL >= 1.0


def _p_values(
    before: Float[np.ndarray, "old features"],
    after: Float[np.ndarray, "new features"],
    upwards: Bool[np.ndarray, " features"],
    generator: np.random.Generator,
) -> Float[np.ndarray, " features"]:
    """Westfall and Young's: `p_j = (1 + #{permutations: max_k T_k >= T_j}) / (1 + permutations)`."""
    everyone, count = np.concatenate([before, after]), len(after)
    std = everyone.std(axis=0)
    standard = (everyone - everyone.mean(axis=0)) / np.where(std > 1e-12, std, np.inf)

    # Sums over the new ones order features as differences of means do: the columns add up to 0.
    def sizes(sums: np.ndarray) -> np.ndarray:
        return np.where(upwards, sums, np.abs(sums))

    found, as_large = sizes(standard[len(before) :].sum(axis=0)), np.ones(len(upwards))
    for _ in range(PERMUTATIONS // _AT_ONCE):
        # The places of the smallest of random numbers are a random choice, made for many permutations at once.
        chosen = generator.random((_AT_ONCE, len(everyone))).argpartition(count - 1, axis=1)[:, :count]
        largest = sizes(standard[chosen].sum(axis=1)).max(axis=1)
        as_large += (largest[:, None] >= found - 1e-9).sum(axis=0)
    return as_large / (1.0 + PERMUTATIONS)


def _block_length(old: Measured, new: Measured) -> int | None:
    if min(len(np.unique(each.episode)) for each in (old, new)) >= FEW_EPISODES:
        return None
    return max(_SHORTEST_BLOCK, min(len(each.episode) for each in (old, new)) // _BLOCKS)


def _unit_means(measured: Measured, chosen: np.ndarray, block: int | None) -> Float[np.ndarray, "units features"]:
    """Means over whole episodes, or over blocks of them; what is left of an episode, if it is half a block, is one."""
    first = np.flatnonzero(np.diff(measured.episode, prepend=measured.episode[0] - 1))
    if block is not None:
        ends = np.append(first[1:], len(measured.episode))
        first = np.concatenate([np.arange(a, b, block) for a, b in zip(first, ends, strict=True)])
    sizes = np.diff(np.append(first, len(measured.episode)))
    means = np.add.reduceat(measured.values[:, chosen], first, axis=0) / sizes[:, None]
    return means if block is None else means[sizes >= min(block / 2, sizes.max())]
