"""Simple rules for the liquidation task: what a learned policy is compared with."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Literal

import numpy as np
from jaxtyping import Float

from phyb.envs.liquidation import DEFAULT_SPEC

HoldEncoding = Literal["negative", "zero"]
HOLD_PROBABILITY = 0.8


def behaviour_actions(
    generator: np.random.Generator,
    shape: tuple[int, ...],
    hold_probability: float = HOLD_PROBABILITY,
    hold_encoding: HoldEncoding = "negative",
) -> Float[np.ndarray, " *shape"]:
    """Actions of the paper's random trader, in float32: hold with the given probability, else sell U(0, 1).

    The paper does not say which number stands for a hold: "negative" draws it from U(-1, 0), "zero" writes 0.
    Both use up the same random numbers, so the same generator state gives the same trades.
    """
    holds = generator.random(shape, dtype=np.float32) < hold_probability
    amounts = generator.random(shape, dtype=np.float32)
    return np.where(holds, -amounts if hold_encoding == "negative" else np.float32(0.0), amounts)


@dataclasses.dataclass(frozen=True)
class Rule:
    """A policy one can say in a sentence: a function of observations and a random generator to actions."""

    act: Callable[[np.ndarray, np.random.Generator], np.ndarray]
    """Observations (n, 3) and a generator to n numbers in [-1, 1]."""
    mean_fraction: Callable[[int, np.ndarray], np.ndarray]
    """Expected fraction sold at a time and at prices; the exact value of the rule follows from it."""
    breaks: tuple[float, ...] = ()
    """Prices at which `mean_fraction` jumps."""

    def __call__(
        self, observations: Float[np.ndarray, "n 3"], generator: np.random.Generator
    ) -> Float[np.ndarray, "n 1"]:
        """The rule's actions in float32."""
        return self.act(observations, generator).astype(np.float32).reshape(-1, 1)


def _is_last(times: np.ndarray | int) -> np.ndarray | bool:
    return times >= DEFAULT_SPEC.horizon - 1.5


def _sells(fraction: Callable[[np.ndarray | int, np.ndarray], np.ndarray], breaks: tuple[float, ...] = ()) -> Rule:
    return Rule(lambda obs, _: fraction(obs[:, 0], obs[:, 2]), fraction, breaks)


def _draws(actions: Callable[[np.random.Generator, int], np.ndarray], mean: float) -> Rule:
    return Rule(lambda obs, generator: actions(generator, len(obs)), lambda _, price: np.full_like(price, mean))


RULES: dict[str, Rule] = {
    "sell at once": _sells(lambda time, price: np.ones_like(price)),
    "wait to the end": _sells(lambda time, price: np.where(_is_last(time), 1.0, np.zeros_like(price))),
    "equal slices": _sells(lambda time, price: np.ones_like(price) / np.maximum(DEFAULT_SPEC.horizon - time, 1)),
    "fixed fraction 0.2": _sells(lambda time, price: np.full_like(price, 0.2)),
    # Everything once the price reaches its long-run mean, at the latest in the last step.
    "threshold 1.5": _sells(
        lambda time, price: np.where((price >= DEFAULT_SPEC.long_run_price) | _is_last(time), 1.0, 0.0),
        breaks=(DEFAULT_SPEC.long_run_price,),
    ),
    "uniform random": _draws(lambda generator, n: generator.uniform(-1.0, 1.0, n), mean=0.25),
    # The policy that made the log.
    "behaviour": _draws(lambda generator, n: behaviour_actions(generator, (n,)), mean=(1.0 - HOLD_PROBABILITY) / 2.0),
}


def as_policy(rule: Rule, seed: int) -> Callable[[np.ndarray], np.ndarray]:
    """A rule with its own stream of random numbers, ready for `phyb.evaluation.returns.episode_returns`."""
    # The environment is often seeded with the same number; the second word keeps the two streams apart.
    generator = np.random.default_rng([seed, 1])
    return lambda observations: rule(observations, generator)
