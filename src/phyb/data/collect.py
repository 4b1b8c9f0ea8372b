"""Logs made by a known behaviour policy in a simulator of our own."""

from __future__ import annotations

import dataclasses
from typing import get_args

import numpy as np

from phyb.data.log import FIELDS, Log
from phyb.envs.liquidation import DEFAULT_SPEC, ENV_ID, LiquidationSpec, initial_states, transition
from phyb.envs.rules import HOLD_PROBABILITY, HoldEncoding, behaviour_actions
from phyb.errors import UsageError

# Blocks have a fixed size, so that a longer log with the same seed begins with the shorter one.
EPISODES_PER_BLOCK = 1024


def collect_liquidation(
    transitions: int,
    seed: int,
    hold_encoding: HoldEncoding = "negative",
    hold_probability: float = HOLD_PROBABILITY,
) -> Log:
    """A log of random trading: hold with `hold_probability`, else sell a uniform fraction of what is left.

    `hold_encoding` says which action stands for a hold: "negative" a draw from U(-1, 0), "zero" exactly 0.
    Episodes follow one another; the last one is cut (`truncated`) where the log reaches `transitions` rows.
    The same arguments give the same log, and both encodings give the same trades.
    """
    _check(transitions, seed, hold_encoding, hold_probability)
    spec = DEFAULT_SPEC
    generator = np.random.default_rng(seed)
    blocks: list[dict[str, np.ndarray]] = []
    missing = transitions
    while missing > 0:
        block = _episodes(generator, spec, hold_encoding, hold_probability)
        blocks.append({name: rows[:missing] for name, rows in block.items()})
        missing -= len(blocks[-1]["rewards"])
    rows = {name: np.concatenate([block[name] for block in blocks]) for name in FIELDS}
    rows["truncated"][-1] = not rows["terminated"][-1]
    return Log(
        **rows,
        action_low=np.full(1, -1.0, np.float32),
        action_high=np.full(1, 1.0, np.float32),
        env_id=ENV_ID,
        provenance={
            "behaviour": f"hold with probability {hold_probability}, else sell a uniform fraction",
            "seed": seed,
            "hold_encoding": hold_encoding,
            "hold_probability": hold_probability,
            "spec": dataclasses.asdict(spec),
        },
    )


def _episodes(
    generator: np.random.Generator,
    spec: LiquidationSpec,
    hold_encoding: HoldEncoding,
    hold_probability: float,
) -> dict[str, np.ndarray]:
    """One block of whole episodes, one after the other, as the columns of a log."""
    count = EPISODES_PER_BLOCK
    states = initial_states(generator.standard_normal(count), spec)
    running = np.ones(count, dtype=bool)
    steps = []
    for _ in range(spec.horizon):
        actions = behaviour_actions(generator, (count, 1), hold_probability, hold_encoding)
        noise = generator.standard_normal(count)
        next_states, rewards, terminated = transition(states, actions, noise, spec)
        cut = np.zeros(count, dtype=bool)
        steps.append((running, states, actions, rewards.astype(np.float32), next_states, terminated, cut))
        running = running & ~terminated
        states = next_states
    kept, *columns = (np.stack(column, axis=1) for column in zip(*steps, strict=True))
    return {name: column[kept] for name, column in zip(FIELDS, columns, strict=True)}


def _check(transitions: int, seed: int, hold_encoding: str, hold_probability: float) -> None:
    if transitions < 1:
        raise UsageError(f"a log needs at least 1 transition, asked for {transitions}")
    if seed < 0:
        raise UsageError(f"the seed must be 0 or more, got {seed}")
    if hold_encoding not in get_args(HoldEncoding):
        known = " or ".join(repr(name) for name in get_args(HoldEncoding))
        raise UsageError(f"unknown hold encoding {hold_encoding!r}: choose {known}")
    if not 0.0 <= hold_probability <= 1.0:
        raise UsageError(f"the hold probability must lie in [0, 1], got {hold_probability}")
