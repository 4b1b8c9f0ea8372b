"""Evaluate and optimise policies under the hybrid belief, exactly, on one finite MDP or on many at once.

The functions below take arrays of any float type, with any batch axes in front, work in float64, and give NumPy arrays.
Those named `_one` give values that are not a number where no fixed point was found; the others raise
`NoFixedPointError`, so that whatever they return stands still to 1e-12.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from phyb.belief.weights import WeightRule
from phyb.theory import operators as op
from phyb.theory.fixed_point import SOLVED, NoFixedPointError, fixed_point
from phyb.theory.mdp import FiniteMDP, Hybrid

Planner = Literal["hybrid", "robust", "kth_min", "average"]


class Evaluation(NamedTuple):
    """Fixed point of an evaluation: Q, V, the objective eta, the belief's weights, and the residual."""

    q: Float[Array, "*batch states actions"]
    values: Float[Array, "*batch states"]
    objective: Float[Array, "*batch"]
    weights: Float[Array, "*batch models states actions"]
    residual: Float[Array, "*batch"]


class Optimum(NamedTuple):
    """Fixed point of an optimal operator and the policy that reaches it."""

    q: Float[Array, "*batch states actions"]
    values: Float[Array, "*batch states"]
    policy: Float[Array, "*batch states actions"]
    residual: Float[Array, "*batch"]


def evaluate_one(
    mdp: FiniteMDP, policy: Array, hybrid: Hybrid, rule: WeightRule = "softmax", start: Array | None = None
) -> Evaluation:
    """Q^pi, the fixed point of B^pi, and eta = E_{rho_0, pi} Q^pi, for one MDP; to be mapped and compiled."""
    first = jnp.zeros(mdp.rewards.shape[0], mdp.rewards.dtype) if start is None else start
    found = fixed_point(lambda v: op.expected(policy, op.backup(mdp, v, hybrid, rule)), first)
    weights = op.hybrid_weights(op.member_values(mdp, found.values), hybrid, rule)
    q = op.backup(mdp, found.values, hybrid, rule)
    return Evaluation(q, found.values, jnp.sum(mdp.start * found.values), weights, found.residual)


def regularised_one(
    mdp: FiniteMDP, policy: Array, reference: Array, hybrid: Hybrid, step_size: Array | float, omega: float
) -> Float[Array, " states"]:
    """V of a fixed policy when every step costs `beta D_psi(pi, mu)`: the objective of theorem 4, for one MDP."""
    cost = op.penalty(policy, reference, step_size, omega)
    first = jnp.zeros(mdp.rewards.shape[0], mdp.rewards.dtype)
    return fixed_point(lambda v: op.expected(policy, op.backup(mdp, v, hybrid)) - cost, first).values


def optimise_one(mdp: FiniteMDP, reference: Array, hybrid: Hybrid, step_size: Array | float, omega: float) -> Optimum:
    """Q*, the fixed point of the optimal regularised operator, and its policy, for one MDP."""

    def step(values: Array) -> Array:
        return op.regularised_value(op.backup(mdp, values, hybrid), reference, step_size, omega).value

    found = fixed_point(step, jnp.zeros(mdp.rewards.shape[0], mdp.rewards.dtype))
    q = op.backup(mdp, found.values, hybrid)
    policy = op.regularised_value(q, reference, step_size, omega).weights
    return Optimum(q, found.values, policy, found.residual)


def plan_one(mdp: FiniteMDP, hybrid: Hybrid, planner: Planner = "hybrid") -> Optimum:
    """The best policy without regularisation, under the belief or one of the alternatives, for one MDP."""
    count = mdp.models.shape[0]
    rule: WeightRule = "softmax" if planner == "hybrid" else "uniform" if planner == "average" else "kth_min"
    size = {"hybrid": hybrid.subset_size, "robust": 1, "kth_min": hybrid.subset_size, "average": count}[planner]
    used = Hybrid(size, hybrid.temperature)
    start = jnp.zeros(mdp.rewards.shape[0], mdp.rewards.dtype)
    found = fixed_point(lambda v: jnp.max(op.backup(mdp, v, used, rule), axis=-1), start)
    q = op.backup(mdp, found.values, used, rule)
    policy = jax.nn.one_hot(jnp.argmax(q, axis=-1), q.shape[-1], dtype=q.dtype)
    return Optimum(q, found.values, policy, found.residual)


def improve_one(
    mdp: FiniteMDP, policy: Array, hybrid: Hybrid, step_size: Array | float, omega: float, iterations: int
) -> tuple[Array, Array]:
    """Regularised policy iteration with a moving reference: policies pi_0 ... pi_n and their eta, for one MDP."""

    def step(reference: Array, _: None) -> tuple[Array, tuple[Array, Array]]:
        after = optimise_one(mdp, reference, hybrid, step_size, omega).policy
        return after, (after, evaluate_one(mdp, after, hybrid).objective)

    _, (policies, objectives) = jax.lax.scan(step, policy, None, length=iterations)
    first = evaluate_one(mdp, policy, hybrid).objective
    return jnp.concatenate([policy[None], policies]), jnp.concatenate([first[None], objectives])


def evaluate(mdp: FiniteMDP, policy: Any, hybrid: Hybrid, rule: WeightRule = "softmax") -> Evaluation:
    """Evaluate a policy under the hybrid belief (or under another weight rule), exactly."""
    return _exactly(evaluate_one, (("rule", rule),), mdp, policy, hybrid)


def optimise(mdp: FiniteMDP, reference: Any, hybrid: Hybrid, *, step_size: float, omega: float) -> Optimum:
    """Solve the Bregman-regularised problem around a reference policy, exactly."""
    return _exactly(optimise_one, (("omega", omega),), mdp, reference, hybrid, step_size)


def plan(mdp: FiniteMDP, hybrid: Hybrid, planner: Planner = "hybrid") -> Optimum:
    """The best policy under the hybrid belief, the worst model, the k-th worst model, or the average model."""
    return _exactly(_plan, (("planner", planner),), mdp, mdp.start, hybrid)


def policy_iteration(
    mdp: FiniteMDP, policy: Any, hybrid: Hybrid, *, step_size: float, omega: float, iterations: int
) -> tuple[np.ndarray, np.ndarray]:
    """Policies (iterations + 1 of them, on the axis after the batch) and eta of each, with a moving reference."""
    fixed = (("omega", omega), ("iterations", iterations))
    return _exactly(improve_one, fixed, mdp, policy, hybrid, step_size)


def _plan(mdp: FiniteMDP, _: Array, hybrid: Hybrid, *, planner: Planner) -> Optimum:
    return plan_one(mdp, hybrid, planner)


@functools.lru_cache(maxsize=64)
def _compiled(work: Callable[..., Any], fixed: tuple[tuple[str, Any], ...], axes: int) -> Callable[..., Any]:
    """`work` with its settings, mapped over batch axes; kept, so that the same question compiles once."""
    mapped: Callable[..., Any] = functools.partial(work, **dict(fixed))
    for _ in range(axes):
        mapped = jax.vmap(mapped)
    return jax.jit(mapped)


def _exactly(
    work: Callable[..., Any], fixed: tuple[tuple[str, Any], ...], mdp: FiniteMDP, table: Any, *numbers: Any
) -> Any:
    """Run `work` in float64 over all batch axes of the MDP; plain numbers are shared by all MDPs."""
    batch = np.shape(mdp.rewards)[:-2]
    with jax.enable_x64(True):
        exact = jax.tree.map(lambda x: jnp.asarray(np.asarray(x), jnp.float64), mdp)
        values = np.asarray(table, np.float64)
        rows = values.shape[-1:] if work is _plan else values.shape[-2:]
        values = jnp.asarray(np.broadcast_to(values, batch + rows))
        shared = jax.tree.map(lambda x: jnp.broadcast_to(jnp.asarray(np.asarray(x)), batch), numbers)
        found = jax.tree.map(np.asarray, _compiled(work, fixed, len(batch))(exact, values, *shared))
    if any(np.isnan(leaf).any() for leaf in jax.tree.leaves(found)):
        raise NoFixedPointError(
            f"No fixed point was found to {SOLVED:g} of the values. Below lambda = Delta, the largest span of values "
            "over the models, the operator may run in circles: raise the temperature, or lower the discount."
        )
    return found
