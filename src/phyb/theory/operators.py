"""The operators of the paper on one finite MDP, exactly, as functions of the state values V.

All of them share one aggregate. With `q_i(s, a) = E_{s' ~ tau_i(s, a)} V(s')` and the k smallest q at (s, a),

    f(q) = sum_i alpha_i q_i,      alpha_i ~ exp(-q_i / lambda)  on the subset, 0 elsewhere,

evaluation backs up `r + gamma f(q)` with `V = E_pi Q`, the optimal operator with `V = max_p <p, Q> - beta D(p, mu)`.
An operator on V has the same fixed points and needs S instead of S A numbers.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from phyb.belief.weights import WeightRule, subset_weights
from phyb.policy.mirror import MirrorStep, mirror_step
from phyb.theory.mdp import FiniteMDP, Hybrid


def member_values(mdp: FiniteMDP, values: Float[Array, "*n states"]) -> Float[Array, "*n models states actions"]:
    """q_i(s, a) = E_{s' ~ tau_i(s, a)} V(s')."""
    # A product of many tiny matrices runs far slower, batched over MDPs, than this sum.
    return jnp.sum(mdp.models * values[..., None, None, None, :], axis=-1)


def hybrid_weights(
    q: Float[Array, "models ..."], hybrid: Hybrid, rule: WeightRule = "softmax"
) -> Float[Array, "models ..."]:
    """alpha, by the same function the deep agent calls; other rules give robust, k-th minimum or average models."""
    unused = jax.random.key(0)
    size, temperature = hybrid
    return subset_weights(unused, q, rule=rule, subset_size=size, temperature=temperature)  # pyright: ignore


def aggregate(q: Float[Array, "models ..."], hybrid: Hybrid, rule: WeightRule = "softmax") -> Array:
    """f(q) = sum_i alpha_i q_i, over the first axis.

    Its derivative, `df / dq_i = alpha_i (1 - (q_i - f) / lambda)`, is written down here because a derivative through
    ranks and softmax costs Newton's method most of its time; the last term is 0 and carries it.
    """
    # The barriers keep the compiler from computing ranks and weights anew for everyone who uses them.
    still = jax.lax.optimization_barrier(jax.lax.stop_gradient(q))
    alpha = jax.lax.optimization_barrier(hybrid_weights(still, hybrid, rule))
    value = jnp.sum(alpha * still, axis=0)
    slope = alpha * (1.0 - (still - value) / hybrid.temperature) if rule == "softmax" else alpha
    return value + jnp.sum(slope * (q - still), axis=0)


def backup(
    mdp: FiniteMDP, values: Float[Array, " states"], hybrid: Hybrid, rule: WeightRule = "softmax"
) -> Float[Array, "states actions"]:
    """Q(s, a) = r(s, a) + gamma f(q(s, a))."""
    return mdp.rewards + mdp.discount * aggregate(member_values(mdp, values), hybrid, rule)


def expected(policy: Float[Array, "states actions"], q: Float[Array, "states actions"]) -> Float[Array, " states"]:
    """V(s) = E_{a ~ pi} Q(s, a)."""
    return jnp.sum(policy * q, axis=-1)


def regularised_value(q: Array, reference: Array, step_size: Array | float, omega: float) -> MirrorStep:
    """V*(s) = max_p <p, Q(s, .)> - beta D_psi(p, mu(s)) with its maximiser, by the deep agent's mirror step."""
    beta = jnp.broadcast_to(jnp.asarray(step_size, q.dtype), q.shape[:-1])
    return mirror_step(q, reference, beta, omega)


def span(mdp: FiniteMDP, *values: Float[Array, "*batch states"]) -> Float[Array, ""]:
    """Delta = max_{s, a} (max_i q_i - min_i q_i), over all drawn models, at the widest of these values.

    q is linear in Q, so along a line between two Q the span is largest at one of the ends.
    """
    q = member_values(mdp, jnp.concatenate([jnp.atleast_2d(each) for each in values]))
    return jnp.max(jnp.max(q, axis=1) - jnp.min(q, axis=1))
