"""When episodes of the locomotion tasks end: Gymnasium's rules, as functions of what is observed.

Each rule tells from (observation, action, next observation) whether the step terminated its episode. They are written
in plain operators: NumPy and JAX arrays of any leading shape will do. All of them look at the successor alone, and a
successor that is not a number ends the episode, as in the simulators. They hold for the v4 and v5 environments with
their default arguments, and for the v2 environments of D4RL.

The simulators judge the full state, the rules what is observed of it. Two things are lost:

- The position along the track is not observed. No rule depends on it.
- Hopper and Walker2d clip observed velocities to [-10, 10]. Hopper also ends when a velocity leaves (-100, 100), which
  observations cannot show: of that bound the rule tests the joint angles only. A hopper driven by its own motors stays
  far below such speeds, so that rule and simulator agree on the states it visits.
"""

from __future__ import annotations

from typing import Any


def hopper_termination(observations: Any, actions: Any, next_observations: Any) -> Any:
    """The hopper falls: not all of z > 0.7, |angle| < 0.2, and every number after z within (-100, 100).

    The bound is on both sides. Older code takes `abs(x < 100)`, the absolute value of a boolean, and so lets very
    negative joints go on.
    """
    height, angle, joints = next_observations[..., 0], next_observations[..., 1], next_observations[..., 1:]
    in_range = (abs(joints) < 100.0).all(axis=-1)
    return ~(in_range & (height > 0.7) & (height < float("inf")) & (abs(angle) < 0.2))


def walker2d_termination(observations: Any, actions: Any, next_observations: Any) -> Any:
    """The walker falls or leaps: not both of 0.8 < z < 2.0 and |angle| < 1."""
    height, angle = next_observations[..., 0], next_observations[..., 1]
    return ~((height > 0.8) & (height < 2.0) & (abs(angle) < 1.0))


def ant_termination(observations: Any, actions: Any, next_observations: Any) -> Any:
    """The ant lies or flies: not 0.2 <= z <= 1.0, or a number that is not finite."""
    height = next_observations[..., 0]
    finite = (abs(next_observations) < float("inf")).all(axis=-1)
    return ~(finite & (height >= 0.2) & (height <= 1.0))


def no_termination(observations: Any, actions: Any, next_observations: Any) -> Any:
    """Cheetah and pendulum never end an episode."""
    first = next_observations[..., 0]  # compared, so that NumPy gives a NumPy array and JAX a traced one
    return (first == first) & False
