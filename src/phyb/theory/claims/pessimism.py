"""How pessimistic the belief is: lower bound, model error, the gap of theorem 2, and what it grows with (theorem 3)."""

from __future__ import annotations

import collections
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from phyb.belief.weights import ranks
from phyb.theory import operators as op
from phyb.theory.claims.base import ALWAYS, Case, Measured, claim
from phyb.theory.claims.cases import belief, beside_delta, draw_mdps, mdp_of
from phyb.theory.exact import evaluate_one
from phyb.theory.mdp import FiniteMDP, Hybrid, dirichlet_models


def ensembles(pool: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """All ways to draw `size` models of a pool with replacement, without order, and the probability of each."""
    drawn = collections.Counter(tuple(sorted(each)) for each in itertools.product(range(pool), repeat=size))
    return np.array(list(drawn)), np.array(list(drawn.values())) / pool**size


def _single(mdp: FiniteMDP, model: Array, policy: Array) -> tuple[Array, Array]:
    """Q and eta of a policy when one model is the truth."""
    found = evaluate_one(mdp._replace(models=model[None]), policy, Hybrid(1, 1.0))
    return found.q, found.objective


@claim(
    "lower-bound",
    "Lower bound (lemma)",
    draw_mdps(2, 1, 3),
    draw_mdps(3, 2, 5),
    condition="T is in the ensemble and outside the subset at every (s, a)",
    control="k",
)
def lower_bound(case: Case, flaw: float) -> Measured:
    """If the true model T is in the ensemble but not in the pessimistic subset, `eta(pi) <= eta(pi, T)`.

    T is the member that comes nearest to lying outside the subset at every state and action.
    """
    mdp = mdp_of(case)
    found = evaluate_one(mdp, case["policy"], belief(case))
    q = op.member_values(mdp, found.values)
    lowest_rank = jnp.min(ranks(q), axis=(1, 2))
    true = jnp.argmax(lowest_rank)
    outside = lowest_rank[true] >= case["subset_size"] * (1.0 - flaw)
    slack = _single(mdp, mdp.models[true], case["policy"])[1] - found.objective
    return Measured(slack * (1.0 - mdp.discount), outside, outside, case["subset_size"] * 1.0)


@claim(
    "lower-bound-remark",
    "Strict lower bound (remark)",
    draw_mdps(2, 1, 2),
    condition="T is in the ensemble",
    corrected="k = 1",
    control="k",
)
def lower_bound_remark(case: Case, flaw: float) -> Measured:
    """`eta(pi)` is a strict lower bound of `eta(pi, T)` whenever T is almost surely in the ensemble.

    Theorem 2 itself leaves `lambda gamma log k / (1 - gamma)`; strictness is not asked for here, equality counts as
    holding.
    """
    mdp = mdp_of(case)
    objective = evaluate_one(mdp, case["policy"], belief(case)).objective
    slack = _single(mdp, mdp.models[0], case["policy"])[1] - objective
    inside = case["subset_size"] <= 1 + flaw
    return Measured(slack * (1.0 - mdp.discount), ALWAYS, inside, case["subset_size"] * 1.0)


@claim(
    "model-error",
    "Dynamics model error (lemma)",
    draw_mdps(3, 2, 2),
    condition="|r| <= R_max",
    control="total variation",
)
def model_error(case: Case, flaw: float) -> Measured:
    """`|Q_T1 - Q_T2| <= 2 gamma R_max / (1 - gamma)^2 d_TV(T1, T2)`, with the largest total variation over (s, a)."""
    mdp = mdp_of(case)
    first, second = (_single(mdp, mdp.models[i], case["policy"])[0] for i in (0, 1))
    distance = jnp.max(0.5 * jnp.sum(jnp.abs(mdp.models[0] - mdp.models[1]), axis=-1))
    bound = 2.0 * mdp.discount * jnp.max(jnp.abs(mdp.rewards)) / (1.0 - mdp.discount) ** 2 * distance
    slack = bound * (1.0 - flaw) - jnp.max(jnp.abs(first - second))
    return Measured(slack * (1.0 - mdp.discount), ALWAYS, ALWAYS, distance)


def _draw_truth(states: int, actions: int, rng: np.random.Generator, count: int) -> Case:
    case = draw_mdps(states, actions, 3, largest=2)(rng, count)
    other = dirichlet_models(rng, np.exp(rng.uniform(-3.0, 1.0, count)), (count, states, actions, states))
    present = rng.uniform(size=count) < 0.5
    truth = np.where(present[:, None, None, None], case["models"][:, 0], other)
    return case | {"truth_model": truth, "present": present, "discount": rng.uniform(0.02, 0.95, count)}


@claim(
    "theorem-2",
    "Theorem 2: pessimism gap",
    *(functools.partial(_draw_truth, *size) for size in ((2, 1), (3, 2))),
    condition="tau is in the ensemble with probability 1 - delta",
    corrected="gamma >= 1/2",
    control="gamma",
)
def theorem_2(case: Case, flaw: float) -> Measured:
    """`E_T[eta(pi) - eta(pi, tau)] <= 2 delta gamma^2 R_max d_max / (1 - gamma)^3 + lambda gamma log k / (1 - gamma)`.

    Two models are drawn from a pool of three; all ensembles are enumerated, so the expectation is exact. d_max is the
    distance of tau from the convex hull of the subset. Half of the pools hold tau (delta = 4/9), half do not
    (delta = 1). The proof bounds a one-step error by the many-step constant of the model-error lemma, which is the
    larger one only for gamma >= 1/2.
    """
    mdp, hybrid, gamma = mdp_of(case), belief(case), case["discount"]
    members, probabilities = ensembles(3, 2)

    def one(chosen: Array) -> tuple[Array, Array]:
        drawn = mdp._replace(models=mdp.models[chosen])
        found = evaluate_one(drawn, case["policy"], hybrid)
        order = jnp.argsort(op.member_values(drawn, found.values), axis=0)
        low, high = (jnp.take_along_axis(drawn.models, order[i][None, ..., None], axis=0)[0] for i in (0, 1))
        high = jnp.where(hybrid.subset_size > 1, high, low)
        return found.objective, jnp.max(_to_segment(case["truth_model"], low, high))

    objectives, distances = jax.vmap(one)(jnp.asarray(members))
    holds_truth = case["present"] & jnp.any(jnp.asarray(members) == 0, axis=1)
    delta = jnp.where(case["present"], 4.0 / 9.0, 1.0)
    distance = jnp.max(jnp.where(holds_truth, 0.0, distances))
    truth = _single(mdp, case["truth_model"], case["policy"])[1]
    gap = jnp.sum(jnp.asarray(probabilities) * objectives) - truth
    largest = jnp.max(jnp.abs(mdp.rewards))
    far = 2.0 * delta * gamma**2 * largest * distance / (1.0 - gamma) ** 3
    near = hybrid.temperature * gamma * jnp.log(hybrid.subset_size) / (1.0 - gamma)
    slack = ((far + near) * (1.0 - flaw) - gap) * (1.0 - gamma)
    return Measured(slack, ALWAYS, gamma >= 0.5, gamma)


def _to_segment(point: Array, first: Array, second: Array) -> Array:
    """Total variation from `point` to the nearest mixture of two distributions, along the last axis, exactly.

    The distance is convex and piecewise linear in the mixing weight; its least value lies at an end or at a weight
    where one coordinate agrees.
    """
    gap = second - first
    meet = jnp.where(jnp.abs(gap) > 1e-300, (point - first) / jnp.where(jnp.abs(gap) > 1e-300, gap, 1.0), 0.0)
    ends = jnp.broadcast_to(jnp.array([0.0, 1.0], point.dtype), (*point.shape[:-1], 2))
    weight = jnp.clip(jnp.concatenate([meet, ends], axis=-1), 0.0, 1.0)[..., None]
    mixed = first[..., None, :] + weight * gap[..., None, :]
    return jnp.min(0.5 * jnp.sum(jnp.abs(point[..., None, :] - mixed), axis=-1), axis=-1)


_THREE = draw_mdps(3, 1, 3, largest=2)


@claim("monotone-k", "Theorem 3: monotone in k", _THREE, draw_mdps(3, 2, 4, largest=3), corrected="lambda >= Delta")
def monotone_k(case: Case, flaw: float) -> Measured:
    """For a fixed ensemble, `Q^pi` does not decrease at any state and action as k increases.

    One application of the operator never decreases in k; the fixed point inherits this through isotonicity, which
    needs `lambda >= Delta`. Delta is the larger span of the two fixed points.
    """
    mdp, hybrid = mdp_of(case), belief(case)
    one_more = hybrid._replace(subset_size=hybrid.subset_size + 1)
    fewer = evaluate_one(mdp, case["policy"], hybrid)
    more = evaluate_one(mdp, case["policy"], one_more, start=fewer.values)
    spread = op.span(mdp, fewer.values, more.values)
    slack = jnp.min(more.q - fewer.q) * (1.0 - mdp.discount)
    return beside_delta(case, slack, spread, flaw)


def _draw_loops(rng: np.random.Generator, count: int) -> Case:
    """MDPs with a loop whose value depends on how many kinds of models are drawn.

    From the start (state 0) the first model leads to nothing (1), the two others into a loop of a good (2) and a bad
    state (3), where the first model always goes to the good one, the others to the bad one. With both kinds drawn
    the value of the loop is so high that the belief gives it little weight at the start; with one more of the others
    it is lower, and gets more weight.
    """
    models = np.zeros((3, 4, 1, 4))
    models[0, [0, 1, 2, 3], 0, [1, 1, 2, 2]] = 1.0
    models[1:, [0, 1, 2, 3], 0, [2, 1, 3, 3]] = 1.0
    noise = np.exp(rng.uniform(-12.0, -2.0, count))[:, None, None, None, None]
    other = dirichlet_models(rng, 0.5, (count, 3, 4, 1, 4))
    discount = 1.0 - np.exp(rng.uniform(np.log(0.03), np.log(0.2), count))
    # The value of the good state where only the bad one ever follows, and the gap between the two, in units of lambda.
    value, gap = rng.uniform(0.1, 0.8, count), rng.uniform(0.8, 1.8, count)
    good = (1.0 - discount) * value + discount * gap
    rewards = np.stack([0.0 * good, 0.0 * good, good, good - gap], axis=1)[..., None]
    start = np.broadcast_to(np.eye(4)[0], (count, 4))
    return {
        "rewards": rewards,
        "models": (1.0 - noise) * models + noise * other,
        "start": start,
        "discount": discount,
        "policy": np.ones((count, 4, 1)),
        "subset_size": rng.integers(1, 3, count),
        "temperature": np.exp(rng.uniform(-0.5, 0.5, count)),
    }


@claim("monotone-n", "Theorem 3: monotone in N", _draw_loops, _THREE, corrected="lambda >= Delta")
def monotone_n(case: Case, flaw: float) -> Measured:
    """For a fixed k, the expectation of `Q^pi` over ensembles drawn from the prior does not increase with N.

    The prior is uniform on a pool of three models, two against three are drawn, and all ensembles are enumerated, so
    that both expectations are exact. Delta is the largest span of any of their fixed points.
    """
    mdp, hybrid = mdp_of(case), belief(case)

    def mean(members: np.ndarray, probabilities: np.ndarray) -> tuple[Array, Array]:
        drawn = jax.vmap(lambda chosen: mdp._replace(models=mdp.models[chosen]))(jnp.asarray(members))
        found = jax.vmap(lambda each: evaluate_one(each, case["policy"], hybrid))(drawn)
        return jnp.tensordot(jnp.asarray(probabilities), found.q, 1), found.values

    (fewer, first), (more, second) = (mean(*ensembles(3, size)) for size in (2, 3))
    slack = jnp.min(fewer - more) * (1.0 - mdp.discount)
    return beside_delta(case, slack, op.span(mdp, first, second), flaw)
