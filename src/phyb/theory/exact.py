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
from phyb.policy.mirror import MirrorStep
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
    mdp: FiniteMDP,
    policy: Array,
    hybrid: Hybrid,
    rule: WeightRule = "softmax",
    start: Array | None = None,
    cost: Array | float = 0.0,
) -> Evaluation:
    """Q^pi, the fixed point of B^pi, and eta = E_{rho_0, pi} Q^pi, for one MDP; to be mapped and compiled.

    The search begins at the values `start`. Every step in a state costs `cost`: with `beta D_psi(pi, mu)`, V is the
    objective of theorem 4.
    """

    def step(values: Array) -> Array:
        return op.expected(policy, op.backup(mdp, values, hybrid, rule)) - cost

    found = fixed_point(step, jnp.zeros_like(mdp.start) if start is None else start)
    weights = op.hybrid_weights(op.member_values(mdp, found.values), hybrid, rule)
    q = op.backup(mdp, found.values, hybrid, rule)
    return Evaluation(q, found.values, jnp.sum(mdp.start * found.values), weights, found.residual)


def optimise_one(mdp: FiniteMDP, reference: Array, hybrid: Hybrid, step_size: Array | float, omega: float) -> Optimum:
    """Q*, the fixed point of the optimal regularised operator, and its policy, for one MDP."""

    def mirror(values: Array) -> MirrorStep:
        return op.regularised_value(op.backup(mdp, values, hybrid), reference, step_size, omega)

    found = fixed_point(lambda values: mirror(values).value, jnp.zeros_like(mdp.start))
    return Optimum(op.backup(mdp, found.values, hybrid), found.values, mirror(found.values).weights, found.residual)


def plan_one(mdp: FiniteMDP, hybrid: Hybrid, planner: Planner = "hybrid") -> Optimum:
    """The best policy without regularisation, under the belief or one of the alternatives, for one MDP."""
    kept = hybrid.subset_size
    kinds: dict[Planner, tuple[WeightRule, Any]] = {
        "hybrid": ("softmax", kept),
        "robust": ("kth_min", 1),
        "kth_min": ("kth_min", kept),
        "average": ("uniform", mdp.models.shape[0]),
    }
    rule, size = kinds[planner]
    used = Hybrid(size, hybrid.temperature)
    found = fixed_point(lambda v: jnp.max(op.backup(mdp, v, used, rule), axis=-1), jnp.zeros_like(mdp.start))
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
    return _exactly(evaluate_one, mdp, (policy,), (hybrid,), rule=rule)


def optimise(mdp: FiniteMDP, reference: Any, hybrid: Hybrid, *, step_size: float, omega: float) -> Optimum:
    """Solve the Bregman-regularised problem around a reference policy, exactly."""
    return _exactly(optimise_one, mdp, (reference,), (hybrid, step_size), omega=omega)


def plan(mdp: FiniteMDP, hybrid: Hybrid, planner: Planner = "hybrid") -> Optimum:
    """The best policy under the hybrid belief, the worst model, the k-th worst model, or the average model."""
    return _exactly(plan_one, mdp, (), (hybrid,), planner=planner)


def policy_iteration(
    mdp: FiniteMDP, policy: Any, hybrid: Hybrid, *, step_size: float, omega: float, iterations: int
) -> tuple[np.ndarray, np.ndarray]:
    """Policies (iterations + 1 of them, on the axis after the batch) and eta of each, with a moving reference."""
    return _exactly(improve_one, mdp, (policy,), (hybrid, step_size), omega=omega, iterations=iterations)


@functools.lru_cache(maxsize=64)
def _compiled(work: Callable[..., Any], axes: int, **fixed: Any) -> Callable[..., Any]:
    """`work` with its settings, mapped over batch axes; kept, so that the same question compiles once."""
    mapped: Callable[..., Any] = functools.partial(work, **fixed)
    for _ in range(axes):
        mapped = jax.vmap(mapped)
    return jax.jit(mapped)


def _exactly(
    work: Callable[..., Any], mdp: FiniteMDP, policies: tuple[Any, ...], numbers: tuple[Any, ...], **fixed: Any
) -> Any:
    """Run `work` in float64 over all batch axes of the MDP; policies and plain numbers may be shared by all MDPs."""
    shape = np.shape(mdp.rewards)
    with jax.enable_x64(True):
        exact = jax.tree.map(lambda x: jnp.asarray(np.asarray(x), jnp.float64), mdp)
        tables = [jnp.broadcast_to(np.asarray(policy, np.float64), shape) for policy in policies]
        shared = jax.tree.map(lambda x: jnp.broadcast_to(jnp.asarray(np.asarray(x)), shape[:-2]), numbers)
        found = jax.tree.map(np.asarray, _compiled(work, len(shape) - 2, **fixed)(exact, *tables, *shared))
    if any(np.isnan(leaf).any() for leaf in jax.tree.leaves(found)):
        raise NoFixedPointError(
            f"No fixed point was found to {SOLVED:g} of the values. Below lambda = Delta, the largest span of values "
            "over the models, the operator may run in circles: raise the temperature, or lower the discount."
        )
    return found
