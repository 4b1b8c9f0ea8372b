"""The exact solver against plain loops, and against what can be worked out by hand."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize

from phyb.errors import DataError
from phyb.theory import (
    Hybrid,
    evaluate,
    fixed_point,
    make_mdp,
    optimise,
    perturbed_models,
    plan,
    policy_iteration,
)
from phyb.theory.mdp import random_mdps, random_policies


def loop_backup(rewards, models, values, discount, size, temperature):
    """Q by loops over states, actions and models; nothing shared with the library."""
    states, actions = len(rewards), len(rewards[0])
    q = np.zeros((states, actions))
    for s in range(states):
        for a in range(actions):
            backups = sorted(sum(p * v for p, v in zip(model[s][a], values, strict=True)) for model in models)[:size]
            weights = [math.exp(-(x - backups[0]) / temperature) for x in backups]
            mixed = sum(w * x for w, x in zip(weights, backups, strict=True)) / sum(weights)
            q[s, a] = rewards[s][a] + discount * mixed
    return q


@pytest.mark.parametrize("seed", range(3))
def test_evaluation_agrees_with_loops(seed):
    rng = np.random.default_rng(seed)
    mdps, policies = random_mdps(rng, 4, 3, 2, 4), random_policies(rng, 4, 3, 2)
    size, temperature = int(rng.integers(1, 5)), float(np.exp(rng.uniform(-1, 1)))
    mdps = mdps._replace(discount=np.minimum(mdps.discount, 0.8))
    found = evaluate(mdps, policies, Hybrid(size, temperature))
    assert found.q.dtype == np.float64
    for i in range(4):
        values, q = np.zeros(3), np.zeros((3, 2))
        for _ in range(200):
            q = loop_backup(mdps.rewards[i], mdps.models[i], values, mdps.discount[i], size, temperature)
            values = (policies[i] * q).sum(axis=1)
        np.testing.assert_allclose(found.q[i], q, rtol=0, atol=1e-10)
        assert found.objective[i] == pytest.approx(mdps.start[i] @ values, abs=1e-10)
    np.testing.assert_allclose(found.weights.sum(axis=1), 1.0)


def test_optimum_agrees_with_brute_force():
    rng = np.random.default_rng(5)
    mdp = random_mdps(rng, 1, 2, 2, 3)
    mdp = mdp._replace(discount=np.array([0.6]), start=np.array([[0.5, 0.5]]))
    reference, hybrid, beta, omega = random_policies(rng, 1, 2, 2), Hybrid(2, 5.0), 0.3, 0.5
    found = optimise(mdp, reference, hybrid, step_size=beta, omega=omega)

    def lost(logits):
        first = 1.0 / (1.0 + np.exp(-np.clip(logits, -30, 30)))
        policy, mu = np.stack([first, 1.0 - first], axis=1), reference[0]
        kl = (policy * np.log(np.maximum(policy, 1e-300) / mu)).sum(axis=1)
        cost = beta * ((1 - omega) / 2 * ((policy - mu) ** 2).sum(axis=1) + omega * kl)
        values = np.zeros(2)
        for _ in range(45):  # 0.6^45 is 1e-10
            q = loop_backup(mdp.rewards[0], mdp.models[0], values, 0.6, 2, 5.0)
            values = (policy * q).sum(axis=1) - cost
        return -values.mean()

    best = minimize(lost, [0.0, 0.0], method="Nelder-Mead", tol=1e-10).fun
    assert found.values[0].mean() == pytest.approx(-best, abs=1e-8)


def moved(before, after):
    """How far values move under one more backup, relative to their size."""
    return np.max(np.abs(after - before)) / (1.0 + np.max(np.abs(before)))


@pytest.mark.parametrize("temperature", [0.02, 3.0])
def test_fixed_points_stand_still_under_plain_loops(temperature):
    """The guaranteed residual, looked at from outside: far below lambda = Delta and above it."""
    rng = np.random.default_rng(8)
    mdps, mu = random_mdps(rng, 6, 3, 2, 4), random_policies(rng, 6, 3, 2)
    hybrid, beta = Hybrid(2, temperature), 0.3
    policy_value, best, optimum = (
        evaluate(mdps, mu, hybrid),
        plan(mdps, hybrid),
        optimise(mdps, mu, hybrid, step_size=beta, omega=1.0),
    )
    for i in range(6):

        def backup(values, i=i):
            return loop_backup(mdps.rewards[i], mdps.models[i], values, mdps.discount[i], 2, temperature)

        assert moved(policy_value.values[i], (mu[i] * backup(policy_value.values[i])).sum(axis=1)) < 2e-12
        assert moved(best.values[i], backup(best.values[i]).max(axis=1)) < 2e-12
        soft = beta * np.log((mu[i] * np.exp(backup(optimum.values[i]) / beta)).sum(axis=1))
        assert moved(optimum.values[i], soft) < 2e-12
    for found in (policy_value, best, optimum):
        assert np.all(found.residual <= fixed_point.SOLVED)


def test_an_operator_without_a_fixed_point_gives_no_values():
    with jax.enable_x64(True):
        found = fixed_point.fixed_point(lambda v: v + 1.0, jnp.zeros(2))
    assert np.all(np.isnan(found.values))
    assert float(found.residual) > fixed_point.SOLVED


def test_the_library_refuses_values_that_do_not_stand_still(monkeypatch):
    monkeypatch.setattr(fixed_point, "MOST_STEPS", 1)
    # A shape that no other test asks for, because compiled programs are kept.
    with pytest.raises(fixed_point.NoFixedPointError, match="raise the temperature"):
        evaluate(
            make_mdp([[0.0, 1.0], [1.0, 0.0]], [np.full((2, 2, 2), 0.5)], 0.9), np.full((2, 2), 0.5), Hybrid(1, 1.0)
        )


def test_iterates_that_run_in_a_circle_are_led_inside():
    """A fold whose plain iterates swap for ever between 0 and 1, and whose derivative there is of no use."""
    with jax.enable_x64(True):
        found = fixed_point.fixed_point(
            lambda v: jnp.where(v < 0.4, 1.0, jnp.where(v > 0.6, 0.0, 3.0 - 5.0 * v)), jnp.zeros(1)
        )
    np.testing.assert_allclose(found.values, 0.5, atol=1e-11)


def two_models(cost=0.15, discount=0.99):
    """State 0 costs something at every step; one model leaves it for good, the other stays."""
    return make_mdp([[-cost], [0.0]], [[[[0, 1]], [[0, 1]]], [[[1, 0]], [[0, 1]]]], discount, [1, 0])


def test_rival_planners_by_hand():
    mdp, hybrid = two_models(), Hybrid(2, 1.0)
    values = {name: plan(mdp, hybrid, name).values[0] for name in ("robust", "kth_min", "average", "hybrid")}
    assert values["robust"] == pytest.approx(-15.0)
    assert values["kth_min"] == pytest.approx(-0.15)
    assert values["average"] == pytest.approx(-0.15 / (1 - 0.99 / 2))
    assert -15.0 < values["hybrid"] < values["average"]


def test_policy_iteration_improves_towards_the_optimum():
    rng = np.random.default_rng(1)
    mdps, hybrid = random_mdps(rng, 3, 3, 2, 3), Hybrid(2, 100.0)
    policies, objectives = policy_iteration(
        mdps, random_policies(rng, 3, 3, 2), hybrid, step_size=0.5, omega=0.9, iterations=20
    )
    assert policies.shape == (3, 21, 3, 2)
    assert np.all(np.diff(objectives, axis=1) > -1e-12)
    best = (mdps.start * plan(mdps, hybrid).values).sum(axis=1)
    gap = best[:, None] - objectives
    assert np.all(gap > -1e-12)
    assert np.all(gap[:, -1] <= 0.1 * gap[:, 0] + 1e-9)


def test_priors_are_distributions_around_what_they_should_be():
    rng = np.random.default_rng(0)
    centre = np.array([[[0.2, 0.8]], [[1.0, 0.0]]])
    near = perturbed_models(rng, centre, 0.01, 50)
    np.testing.assert_allclose(near.sum(axis=-1), 1.0)
    np.testing.assert_allclose(near.mean(axis=0), centre, atol=0.01)


@pytest.mark.parametrize(
    ("models", "discount", "words"),
    [
        ([[[[0.5, 0.4]], [[0, 1]]]], 0.9, "probability distribution"),
        ([[[[1.0]], [[1.0]]]], 0.9, "lead to 1 states"),
        ([[[0.5, 0.5], [0, 1]]], 0.9, "expected (models, states, actions, states)"),
        ([[[[0.5, 0.5]], [[0, 1]]]], 1.0, "discount"),
    ],
)
def test_bad_worlds_are_refused(models, discount, words):
    with pytest.raises(DataError) as error:
        make_mdp([[0.0], [1.0]], models, discount)
    assert words in str(error.value)
