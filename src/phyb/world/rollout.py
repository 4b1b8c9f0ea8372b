"""The one rollout: follow a policy inside the learned environment and record what happens.

    rollout(key, starts, act, step, length=..., record=...)

`act` chooses actions, `step` says what they lead to, `record` folds the transitions into what is wanted: returns, rows
for a replay buffer. An algorithm that moves or pays otherwise brings a step of its own, often around one of these:

- `member_step`: every member moves alone, from states of its own;
- `elite_step`: every rollout follows one member, drawn anew at each step;
- `phyb.belief.backup.belief_step`: members are drawn, weighed by their backups, and one is followed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from phyb.data.dataset import Rows
from phyb.dynamics.pool import Pool, Prediction
from phyb.networks import Standardizer, select, take
from phyb.world.model import WorldConfig, WorldModel, imagine, successor_noise


class Transition(NamedTuple):
    """One step of all rollouts."""

    row: Rows
    """Observations, actions, rewards, successors, and how likely the episode terminates there."""
    weight: Float[Array, "*rollouts"]
    """How likely each rollout had not ended before: what the step counts."""
    survival: Float[Array, "*rollouts"]
    """How likely it goes on from there. 0 where it terminates, and where it is cut off for any other reason."""
    info: Any = None
    """What a step wants to have recorded beside."""


Act = Callable[[PRNGKeyArray, Any], Any]
"""(key, states) to actions in [-1, 1]."""
Step = Callable[[PRNGKeyArray, Any, Any, Array], Transition]
"""(key, states, actions, alive) to a transition; states are its `row.next_observations`, any tree of arrays."""


class Recorder(NamedTuple):
    """A fold over transitions."""

    start: Callable[[Array], Any] = lambda alive: None
    """What is recorded before the first step, given the shape of the rollouts."""
    add: Callable[[Any, Transition], Any] = lambda recorded, transition: recorded
    """What is recorded after one more transition."""
    keep: Callable[[Transition], Any] = lambda transition: None
    """What is kept of each step, stacked along a new first axis."""


class Rollout(NamedTuple):
    """Where rollouts ended, and what was recorded."""

    states: Any
    alive: Float[Array, "*rollouts"]
    """How likely each has not ended."""
    recorded: Any
    kept: Any


def rollout(
    key: PRNGKeyArray,
    starts: Any,
    act: Act | Array,
    step: Step,
    *,
    length: int,
    record: Recorder,
    alive: Float[Array, "*rollouts"] | None = None,
    hold: bool = True,
) -> Rollout:
    """`length` steps from each start. What has ended counts no more and stays where it is.

    Args:
        key: split into one key per step, and that into one for the actions and one for the step.
        starts: observations, or any tree of arrays that `act` and `step` understand.
        act: a policy, or the actions of all steps along a first axis (open loop).
        step: what happens, such as `member_step`.
        length: steps.
        record: what to record.
        alive: how likely each rollout has not ended at its start; needed where starts are not plain observations.
        hold: False lets what has ended move on, uncounted, which is only safe for a few steps.
    """

    def one(carry: tuple[Any, Array, Any], inputs: tuple[PRNGKeyArray, Any]) -> tuple[tuple[Any, Array, Any], Any]:
        states, alive, recorded = carry
        act_key, step_key = jax.random.split(inputs[0])
        moved = step(step_key, states, act(act_key, states) if callable(act) else inputs[1], alive)
        alive = moved.weight * moved.survival
        # A model asked again and again beyond its data ends in numbers like NaN.
        after = moved.row.next_observations
        states = select(alive > 0, after, states) if hold else after
        return (states, alive, record.add(recorded, moved)), record.keep(moved)

    alive = jnp.ones(starts.shape[:-1]) if alive is None else alive
    inputs = (jax.random.split(key, length), None if callable(act) else act)
    last, kept = jax.lax.scan(one, (starts, alive, record.start(alive)), inputs)
    return Rollout(*last, kept)


# --- Recorders ---


def total(of: Callable[[Transition], Array] = lambda transition: transition.row.rewards) -> Recorder:
    """The sum `sum_t weight_t x_t` of something, by default the reward: the return."""
    return Recorder(jnp.zeros_like, lambda found, transition: found + transition.weight * of(transition))


def discounted_return(discount: float) -> Recorder:
    """The pair of `sum_t gamma^t weight_t r_t` and the discount of the next step."""

    def add(recorded: tuple[Array, Array], transition: Transition) -> tuple[Array, Array]:
        found, factor = recorded
        return found + factor * (transition.weight * transition.row.rewards), factor * discount

    return Recorder(lambda alive: (jnp.zeros_like(alive), jnp.ones(())), add)


def together(**recorders: Recorder) -> Recorder:
    """Several recorders at once, by name."""
    return Recorder(
        lambda alive: {name: each.start(alive) for name, each in recorders.items()},
        lambda found, transition: {name: each.add(found[name], transition) for name, each in recorders.items()},
        lambda transition: {name: each.keep(transition) for name, each in recorders.items()},
    )


ROWS = Recorder(keep=lambda transition: (transition.row, transition.weight > 0))
"""All rows, step by step, and which of them count: those up to the end of their rollout."""


# --- Steps ---


def member_step(world: WorldModel, config: WorldConfig, members: Int[Array, " drawn"]) -> Step:
    """Every member moves alone, with the noise that is asked for; states are `[drawn, rows, obs]`.

    Where trust is lost a state is worth the floor: that share of the rollout earns it and is cut off.
    """
    config = dataclasses.replace(config, noise_samples=1)

    def step(key: PRNGKeyArray, states: Array, actions: Array, alive: Array) -> Transition:
        then = imagine(world, config, members, states, actions, successor_noise(key, config, *states.shape))
        survival, trust = then.alive[:, 0], then.trust[:, 0]
        rewards = then.rewards + survival * (1.0 - trust) * world.value_floor
        row = Rows(states, actions, rewards, then.successors[:, 0], 1.0 - survival)
        return Transition(row, alive, survival * trust)

    return step


def penalize_disagreement(step: Step, other: Step, standardizer: Standardizer, penalty: float) -> Step:
    """A step that earns `r - penalty d`, where d is how far the successors of two steps of the same key lie apart.

        d(s, a) = |z(s') - z(s'')| / sqrt(dimensions),    z standardises observations.

    The disagreement d is the transition's `info`.
    """

    def penalized(key: PRNGKeyArray, states: Array, actions: Array, alive: Array) -> Transition:
        moved, otherwise = (each(key, states, actions, alive) for each in (step, other))
        ours, theirs = (standardizer(each.row.next_observations) for each in (moved, otherwise))
        disagreement = jnp.sqrt(jnp.mean((ours - theirs) ** 2, axis=-1))
        row = moved.row._replace(rewards=moved.row.rewards - penalty * disagreement)
        return moved._replace(row=row, info=disagreement)

    return penalized


def elite_members(pool: Pool, count: int) -> Int[Array, " elites"]:
    """The `count` members that predict the hold-out rows best, best first; all of them if there are no more."""
    return jnp.argsort(pool.holdout_nll)[:count]


def outcomes(
    key: PRNGKeyArray,
    world: WorldModel,
    members: Int[Array, " asked"],
    observations: Float[Array, "rows obs"],
    actions: Float[Array, "rows act"],
    count: int,
) -> Rows:
    """`count` outcomes of each row, along a new first axis. Each is drawn from one member, drawn uniformly itself."""
    member_key, noise_key, end_key = jax.random.split(key, 3)
    shape = (count, observations.shape[0])
    chosen, row = jax.random.randint(member_key, shape, 0, members.shape[0]), jnp.arange(shape[1])
    predictions = take(world.predict(members, observations, actions), (chosen, row))
    return draw_outcomes(noise_key, end_key, world, predictions, observations, actions)


def draw_outcomes(
    noise_key: PRNGKeyArray,
    end_key: PRNGKeyArray,
    world: WorldModel,
    predictions: Prediction,
    observations: Float[Array, "*rows obs"],
    actions: Float[Array, "*rows act"],
) -> Rows:
    """What may happen according to predictions; observations and actions broadcast against them."""
    shape = predictions.reward_mean.shape
    noise = jax.random.normal(noise_key, (*shape, observations.shape[-1] + 1))
    successors = predictions.next_mean + predictions.next_std * noise[..., :-1]
    ends = world.end_probability(predictions, observations, actions, successors)
    return Rows(
        jnp.broadcast_to(observations, successors.shape),
        jnp.broadcast_to(actions, (*shape, actions.shape[-1])),
        world.rewards(predictions, observations, actions, successors, noise[..., -1]),
        successors,
        (jax.random.uniform(end_key, shape) < ends).astype(successors.dtype),
    )


def elite_step(world: WorldModel, members: Int[Array, " elites"]) -> Step:
    """Every rollout follows one of the members, drawn anew at each step, with its noise."""

    def step(key: PRNGKeyArray, observations: Array, actions: Array, alive: Array) -> Transition:
        row = take(outcomes(key, world, members, observations, actions, 1), 0)
        return Transition(row, alive, 1.0 - row.terminated)

    return step


# --- Whole episodes ---


class Episodes(NamedTuple):
    """One episode from each start in each member."""

    returns: Float[Array, "drawn rows"]
    """The sum of rewards in learning units, less the penalty."""
    survival: Float[Array, "drawn rows"]
    """How likely the episode has not ended."""
    disagreement: Float[Array, "drawn rows"]
    """Mean disagreement of the members about a step of it; 0 without a penalty, since no other member is asked then."""


def member_episodes(
    key: PRNGKeyArray,
    world: WorldModel,
    config: WorldConfig,
    members: Int[Array, " drawn"],
    starts: Float[Array, "rows obs"],
    act: Act,
    standardizer: Standardizer,
    *,
    length: int,
    disagreement_penalty: float = 0.0,
) -> Episodes:
    """Roll policies out in each member alone, from the same starts and with common random numbers.

    A member is wrong without knowing where the log says nothing. So at every step another member is asked about the
    same state and action, and their disagreement costs: an episode earns `sum_t alive_t (r_t - penalty d_t)`, with d of
    `penalize_disagreement`. The same key is the same noise. `act` takes states `[drawn, rows, obs]`; rows may belong to
    different policies.
    """
    other_key, key = jax.random.split(key)
    step, disagreement = member_step(world, config, members), Recorder(jnp.zeros_like)
    if disagreement_penalty:
        size = world.pool.size
        others = (members + jax.random.randint(other_key, (), 1, max(size, 2))) % size
        other = member_step(world, config, others)
        step = penalize_disagreement(step, other, standardizer, disagreement_penalty)
        disagreement = total(lambda transition: transition.info)
    record = together(returns=total(), disagreement=disagreement)
    states = jnp.broadcast_to(starts, (len(members), *starts.shape))
    found = rollout(key, states, act, step, length=length, record=record)
    return Episodes(found.recorded["returns"], found.alive, found.recorded["disagreement"] / length)
