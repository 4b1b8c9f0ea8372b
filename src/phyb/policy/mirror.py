"""The mirror step: exact Bregman-regularised improvement of a distribution over finitely many actions.

With the mixed potential of the paper, `psi(x) = (1 - omega)/2 |x|^2 + omega sum_j x_j log x_j`, and a reference
distribution m, one step solves over the probability simplex

    max_p  <p, q> - beta D_psi(p, m),      D_psi(p, m) = (1 - omega)/2 |p - m|^2 + omega KL(p || m).

Stationarity with the multiplier z of the constraint sum_j p_j = 1 reads (theorem 4 of the paper)

    (1 - omega) p_j + omega log p_j = (q_j - z)/beta + (1 - omega) m_j + omega log m_j.

omega = 1 gives the softmax `p ~ m exp(q / beta)`, omega = 0 the sparse Euclidean projection of `m + q / beta`; in
between, p_j is a Wright omega function of the right-hand side and z the root of a convex decreasing function.
All functions work on the last axis and on any batch in front of it; omega is a plain number fixed at trace time.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

Scope = Literal["state", "batch"]


class MirrorStep(NamedTuple):
    """The solution of one mirror step."""

    weights: Float[Array, "*batch actions"]
    value: Float[Array, "*batch"]
    divergence: Float[Array, "*batch"]
    step_size: Float[Array, "*batch"]


@jax.custom_jvp
def wright_omega(x: Float[Array, "*dims"]) -> Float[Array, "*dims"]:
    """The w > 0 that solves `w + log w = x` (Lambert's W of exp(x), without its overflow)."""
    bulk = jnp.clip(x, -30.0, None)
    guess = jnp.where(
        bulk > 1.0,
        bulk - jnp.log(jnp.maximum(bulk, 1.0)),
        jnp.where(bulk > -2.0, jnp.exp(2.0 * (bulk - 1.0) / 3.0), jnp.exp(bulk)),
    )
    w = guess
    for _ in range(2):  # fourth-order steps: two of them reach float64 accuracy from this guess
        residual = bulk - w - jnp.log(w)
        shifted = 1.0 + w
        twice = 2.0 * shifted * (shifted + residual * (2.0 / 3.0))
        w = w * (1.0 + residual / shifted * (twice - residual) / (twice - 2.0 * residual))
    return jnp.where(x > -30.0, w, jnp.exp(x))


@wright_omega.defjvp
def _wright_omega_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    w = wright_omega(*primals)
    return w, tangents[0] * w / (1.0 + w)


def divergence(
    p: Float[Array, "*batch actions"], reference: Float[Array, "*batch actions"], omega: float
) -> Float[Array, "*batch"]:
    """D_psi(p, m) = (1 - omega)/2 |p - m|^2 + omega KL(p || m) between two distributions."""
    euclidean = 0.5 * jnp.sum((p - reference) ** 2, axis=-1)
    if omega == 0.0:
        return euclidean
    ratio = jnp.where(p > 0, p, 1.0) / jnp.where(p > 0, jnp.maximum(reference, _tiny(p)), 1.0)
    kl = jnp.sum(p * jnp.log(ratio), axis=-1)
    return (1.0 - omega) * euclidean + omega * kl


def mirror_weights(
    q: Float[Array, "*batch actions"],
    reference: Float[Array, "*batch actions"],
    step_size: float | Float[Array, "*batch"],
    omega: float,
) -> Float[Array, "*batch actions"]:
    """The maximiser p of `<p, q> - beta D_psi(p, m)` over the simplex; differentiable in all its arguments.

    Larger step sizes beta > 0 stay closer to the reference m. Where m is 0 and omega > 0, p is 0 too.
    """
    beta = jnp.expand_dims(jnp.asarray(step_size, q.dtype), -1)
    if omega > 0.0:
        # log m stops at the smallest float; with the least value on top, no q can win over a mass of 0.
        q = jnp.where(reference > 0, q, jnp.min(q, axis=-1, keepdims=True))
    # Shifting q changes only the multiplier, and keeps large values from eating the digits of small gaps.
    tilt = (q - jax.lax.stop_gradient(jnp.max(q, axis=-1, keepdims=True))) / beta
    if omega == 0.0:
        return _project(reference + tilt)
    log_reference = jnp.log(jnp.maximum(reference, _tiny(q)))
    if omega == 1.0:
        p = jax.nn.softmax(tilt + log_reference, axis=-1)
    else:
        solve = _solve_from_softmax if omega >= 0.3 else _solve_for_multiplier
        p = solve(tilt + (1.0 - omega) * reference + omega * log_reference, omega)
    p = jnp.where(reference > 0, p, 0.0)
    return p / jnp.sum(p, axis=-1, keepdims=True)


def mirror_step(
    q: Float[Array, "*batch actions"],
    reference: Float[Array, "*batch actions"],
    step_size: float | Float[Array, "*batch"],
    omega: float,
) -> MirrorStep:
    """Solve one mirror step and give its weights and the regularised value `V* = <p, q> - beta D_psi(p, m)`.

    The weights come without gradient; the value's gradient is exact all the same, because at the maximum only the
    explicit dependence counts: dV*/dq = p (envelope theorem).
    """
    p = jax.lax.stop_gradient(mirror_weights(q, reference, step_size, omega))
    distance = divergence(p, reference, omega)
    beta = jnp.broadcast_to(jnp.asarray(step_size, q.dtype), distance.shape)
    value = jnp.sum(p * q, axis=-1) - beta * distance
    return MirrorStep(p, value, distance, beta)


def step_size_for(
    q: Float[Array, "*batch actions"],
    reference: Float[Array, "*batch actions"],
    target: float | Float[Array, ""],
    omega: float,
    scope: Scope = "batch",
    *,
    start: Float[Array, "*batch"] | None = None,
    steps: int = 10,
) -> Float[Array, "*batch"]:
    """The beta at which the mirror step's divergence meets `target`: in each state, or on average over the batch.

    Newton's method on log D as a function of log beta, kept inside a shrinking bracket, with the exact slope
    `dD / d log beta = -(1 / beta^2) sum_j h_j (q_j - sum h q / sum h)^2`, `h_j = 1 / psi''(p_j)`; for large beta the
    curve is a straight line of slope -2. A target beyond what the candidates allow ends at a very small beta.

    The scope "state" gives each state its own beta, "batch" one beta for all, so that only the mean divergence meets
    the target and states where actions do not matter hardly move. `start` is a first guess, such as the beta of the
    update before; a good one needs only two or three `steps` of Newton's method.
    """
    q, reference = jax.lax.stop_gradient((q, reference))
    spread = jnp.max(q, axis=-1) - jnp.min(q, axis=-1)
    spread = jnp.full_like(spread, jnp.max(spread)) if scope == "batch" else spread
    spread = jnp.maximum(spread, _tiny(q) * 1e8)
    low, high = jnp.log(spread) - 12.0, jnp.log(spread) + 8.0
    guess = jnp.log(spread if start is None else jnp.broadcast_to(start, spread.shape))

    def newton(carry: tuple[Array, Array, Array], _: None) -> tuple[tuple[Array, Array, Array], None]:
        log_beta, low, high = carry
        beta = jnp.exp(log_beta)
        p = mirror_weights(q, reference, beta, omega)
        h = _curvature(p, omega)
        mean = jnp.sum(h * q, axis=-1, keepdims=True) / jnp.sum(h, axis=-1, keepdims=True)
        slope = -jnp.sum(h * (q - mean) ** 2, axis=-1) / beta**2
        reached = divergence(p, reference, omega)
        if scope == "batch":
            slope, reached = (jnp.full_like(log_beta, jnp.mean(x)) for x in (slope, reached))
        reached = jnp.maximum(reached, _tiny(q))
        too_far = reached > target
        low, high = jnp.where(too_far, log_beta, low), jnp.where(too_far, high, log_beta)
        proposal = log_beta + (jnp.log(target) - jnp.log(reached)) * reached / jnp.minimum(slope, -_tiny(q))
        inside = (proposal >= low) & (proposal <= high)
        return (jnp.where(inside, proposal, 0.5 * (low + high)), low, high), None

    (log_beta, _, _), _ = jax.lax.scan(newton, (jnp.clip(guess, low, high), low, high), None, length=steps)
    return jnp.exp(log_beta)


def _solve_from_softmax(right_side: Array, omega: float) -> Array:
    """Newton's method on all log p_j and z at once; one exponential per step, few steps unless omega is small."""

    def newton(log_p: Array, _: None) -> tuple[Array, None]:
        p = jnp.exp(log_p)
        bend = (1.0 - omega) * p + omega
        gap = right_side - (1.0 - omega) * p - omega * log_p
        follow = p / bend
        # The multiplier that makes the new p_j sum to 1 to first order.
        excess = jnp.sum(p + follow * gap, axis=-1, keepdims=True) - 1.0
        multiplier = excess / jnp.sum(follow, axis=-1, keepdims=True)
        return jnp.minimum(log_p + jnp.minimum((gap - multiplier) / bend, 2.0), 0.0), None

    start = jax.lax.stop_gradient(jax.nn.log_softmax(right_side / omega, axis=-1))
    log_p, _ = jax.lax.scan(newton, start, None, length=2 if omega >= 0.8 else 7)
    # One step from the solution, where the gradients of the way there are cut, carries the exact derivative.
    return jnp.exp(newton(jax.lax.stop_gradient(log_p), None)[0])


def _solve_for_multiplier(right_side: Array, omega: float) -> Array:
    """Newton's method on z, with p_j(z) in closed form: p = r Omega(y/omega - log r), r = omega / (1 - omega)."""
    ratio = omega / (1.0 - omega)

    def weights_at(multiplier: Array) -> Array:
        return ratio * wright_omega((right_side - multiplier) / omega - jnp.log(ratio))

    def newton(multiplier: Array, _: None) -> tuple[Array, None]:
        p = weights_at(multiplier)
        excess = jnp.sum(p, axis=-1, keepdims=True) - 1.0
        return multiplier + excess / jnp.sum(_curvature(p, omega), axis=-1, keepdims=True), None

    # Here the largest p_j alone is 1, so the sum is at least 1: left of the root of a convex decreasing function,
    # from where Newton's method climbs to the root without ever passing it.
    start = jnp.max(right_side, axis=-1, keepdims=True) - (1.0 - omega)
    root, _ = jax.lax.scan(newton, jax.lax.stop_gradient(start), None, length=20)
    return weights_at(newton(jax.lax.stop_gradient(root), None)[0])


def _curvature(p: Array, omega: float) -> Array:
    """1 / psi''(p) = p / ((1 - omega) p + omega): how fast p_j follows the right-hand side."""
    if omega == 0.0:
        return (p > 0).astype(p.dtype)
    return p / ((1.0 - omega) * p + omega)


def _project(y: Array) -> Array:
    """The point of the simplex nearest to y."""
    descending = -jnp.sort(-y, axis=-1)
    above = jnp.cumsum(descending, axis=-1) - 1.0
    count = jnp.arange(1, y.shape[-1] + 1, dtype=y.dtype)
    kept = jnp.sum(descending * count > above, axis=-1, keepdims=True)
    level = jnp.take_along_axis(above, kept - 1, axis=-1) / kept
    return jnp.maximum(y - level, 0.0)


def _tiny(like: Array) -> Array:
    return jnp.asarray(jnp.finfo(like.dtype).tiny, like.dtype)
