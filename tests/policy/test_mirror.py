"""The mirror step against closed forms, a convex solver, its optimality conditions and its derivatives."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import scipy.special
from hypothesis import given, settings
from hypothesis import strategies as st

from phyb.policy.mirror import divergence, mirror_step, mirror_weights, step_size_for, wright_omega

OMEGAS = (0.0, 0.05, 0.1, 0.3, 0.5, 0.9, 1.0)
FEW_OMEGAS = (0.0, 0.1, 0.9, 1.0)  # one for each way of solving
MIXED = OMEGAS[1:-1]
ROWS, ACTIONS = 12, 6

# Compiling is what takes time here: every test solves batches of the same shape.
solve = jax.jit(mirror_step, static_argnames="omega")
beta_for = jax.jit(partial(step_size_for, steps=20), static_argnames=("omega", "scope"))
some_seeds = settings(max_examples=10, deadline=None)


def random_case(seed, scale=1.0, spread=2.0, dtype: type = np.float32):
    """Values, references (some very uneven) and step sizes from bold to timid, one row each."""
    rng = np.random.default_rng(seed)
    q = scale * rng.normal(size=(ROWS, ACTIONS))
    reference = rng.dirichlet(np.full(ACTIONS, 0.5), size=ROWS)
    reference = np.maximum(reference, 1e-6) / np.maximum(reference, 1e-6).sum(axis=-1, keepdims=True)
    beta = scale * 10.0 ** rng.uniform(-spread, spread, size=ROWS)
    return q.astype(dtype), reference.astype(dtype), beta.astype(dtype)


def projection(y):
    """The Euclidean projection onto the simplex, by bisection on the level."""
    low, high = y.min() - 1.0, y.max()
    for _ in range(200):
        level = 0.5 * (low + high)
        low, high = (level, high) if np.maximum(y - level, 0.0).sum() > 1.0 else (low, level)
    return np.maximum(y - 0.5 * (low + high), 0.0)


def loss_and_slope(p, q, m, beta, omega):
    """What the mirror step minimises, in units of beta, and its gradient."""
    log_ratio = np.log(p / m)
    loss = 0.5 * (1.0 - omega) * np.sum((p - m) ** 2) + omega * p @ log_ratio - p @ q / beta
    return loss, (1.0 - omega) * (p - m) + omega * (log_ratio + 1.0) - q / beta


@pytest.mark.parametrize("seed", range(3))
def test_omega_one_is_the_softmax(seed):
    q, m, beta = random_case(seed)
    expected = scipy.special.softmax(np.log(m.astype(np.float64)) + q / beta[:, None], axis=-1)
    np.testing.assert_allclose(solve(q, m, beta, omega=1.0).weights, expected, rtol=2e-4, atol=1e-7)
    log_mean = np.asarray(scipy.special.logsumexp(q / beta[:, None].astype(np.float64), b=m, axis=-1))
    np.testing.assert_allclose(solve(q, m, beta, omega=1.0).value, beta * log_mean, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("seed", range(3))
def test_omega_zero_is_the_euclidean_projection(seed):
    q, m, beta = random_case(seed)
    expected = np.stack([projection(y) for y in m + q / beta[:, None].astype(np.float64)])
    found = np.asarray(solve(q, m, beta, omega=0.0).weights)
    np.testing.assert_allclose(found, expected, atol=2e-5)
    assert np.any(found == 0.0), "bold Euclidean steps drop actions entirely"


@pytest.mark.parametrize("omega", MIXED)
def test_between_the_limits_it_agrees_with_a_convex_solver(omega):
    with jax.enable_x64(True):
        q, m, beta = random_case(seed=7, spread=1.0, dtype=np.float64)
        found = jax.device_get(solve(q, m, beta, omega=omega))
    for row in range(ROWS):
        best = scipy.optimize.minimize(
            loss_and_slope,
            m[row],
            args=(q[row], m[row], beta[row], omega),
            jac=True,
            method="SLSQP",
            bounds=[(1e-14, 1.0)] * ACTIONS,
            constraints={"type": "eq", "fun": lambda p: p.sum() - 1.0, "jac": np.ones_like},
            options={"ftol": 1e-15, "maxiter": 1000},
        )
        # How close the solver comes depends on the processor: ours must be near its answer and never worse.
        np.testing.assert_allclose(found.weights[row], best.x, atol=1e-3)
        assert -1e-12 < found.value[row] / beta[row] + best.fun < 1e-6


def stationarity_gap(p, q, m, beta, omega):
    """How much `(1-w) p + w log p - q/beta - (1-w) m - w log m` differs between actions that carry weight."""
    p, q, m, beta = (np.asarray(x, np.float64) for x in (p, q, m, beta))
    side = q / beta[:, None] + (1 - omega) * m + omega * np.log(m)
    residual = (1 - omega) * p + omega * np.log(np.maximum(p, 1e-300)) - side
    carries = p > 1e-6
    highest = np.max(np.where(carries, residual, -np.inf), axis=-1)
    lowest = np.min(np.where(carries, residual, np.inf), axis=-1)
    size = 1.0 + np.ptp(q / beta[:, None], axis=-1)
    return np.max((highest - lowest) / size)


@pytest.mark.parametrize("omega", MIXED)
@given(seed=st.integers(0, 10**6), log_scale=st.floats(-4, 4))
@some_seeds
def test_the_optimality_conditions_hold_at_every_scale(omega, seed, log_scale):
    q, m, beta = random_case(seed, 10.0**log_scale)
    p = np.asarray(solve(q, m, beta, omega=omega).weights)
    assert np.all(p >= 0)
    np.testing.assert_allclose(p.sum(axis=-1), 1.0, atol=1e-6)
    assert stationarity_gap(p, q, m, beta, omega) < 1e-4


@pytest.mark.parametrize("omega", MIXED)
def test_double_precision_solves_to_double_precision(omega):
    with jax.enable_x64(True):
        q, m, beta = random_case(3, dtype=np.float64)
        p = np.asarray(solve(q, m, beta, omega=omega).weights)
    assert stationarity_gap(p, q, m, beta, omega) < 1e-9


@pytest.mark.parametrize("omega", OMEGAS)
def test_the_values_slope_is_the_weights(omega):
    with jax.enable_x64(True):
        q, m, beta = random_case(5, spread=1.0, dtype=np.float64)
        step = solve(q, m, beta, omega=omega)
        slope = jax.grad(lambda q: jnp.sum(solve(q, m, beta, omega=omega).value))(q)
        h = 1e-5 * beta[:, None]
        differences = [
            (solve(q + h * e, m, beta, omega=omega).value - solve(q - h * e, m, beta, omega=omega).value)
            / (2 * h[:, 0])
            for e in np.eye(ACTIONS)
        ]
        np.testing.assert_allclose(slope, step.weights, atol=1e-12)
        np.testing.assert_allclose(np.stack(differences, axis=-1), step.weights, atol=2e-6)


@pytest.mark.parametrize("omega", FEW_OMEGAS)
def test_the_weights_are_differentiable_in_all_arguments(omega):
    with jax.enable_x64(True):
        at = random_case(11, spread=0.5, dtype=np.float64)
        rng = np.random.default_rng(0)
        towards = tuple(0.1 * rng.normal(size=x.shape) * x for x in at)
        cotangent = rng.normal(size=at[0].shape)

        @jax.jit
        def slopes(at):
            run = partial(mirror_weights, omega=omega)
            return jax.jvp(run, at, towards)[1], jax.vjp(run, *at)[1](cotangent)

        forward, backward = slopes(at)
        ahead, behind = (
            solve(*(x + h * d for x, d in zip(at, towards, strict=True)), omega=omega).weights for h in (1e-6, -1e-6)
        )
        np.testing.assert_allclose(forward, (ahead - behind) / 2e-6, atol=1e-7)
        pulled = sum(float(np.sum(g * d)) for g, d in zip(backward, towards, strict=True))
        assert float(np.sum(cotangent * forward)) == pytest.approx(pulled, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("omega", OMEGAS)
@given(seed=st.integers(0, 10**6), log_scale=st.floats(-3, 3))
@some_seeds
def test_the_value_lies_between_the_references_mean_and_the_best_action(omega, seed, log_scale):
    q, m, beta = random_case(seed, 10.0**log_scale)
    step = solve(q, m, beta, omega=omega)
    slack = 1e-5 * (np.abs(q).max(axis=-1) + beta)
    assert np.all(step.value >= np.sum(m * q, axis=-1) - slack)
    assert np.all(step.value <= q.max(axis=-1) + slack)
    assert np.all(step.divergence >= -1e-6)


@pytest.mark.parametrize("omega", OMEGAS)
@given(seed=st.integers(0, 10**6))
@some_seeds
def test_a_larger_step_size_stays_closer_and_is_worth_less(omega, seed):
    q, m, _ = random_case(seed)
    steps = [solve(q, m, np.full(ROWS, beta, np.float32), omega=omega) for beta in np.geomspace(0.01, 100, 9)]
    assert np.all(np.diff([s.divergence for s in steps], axis=0) <= 1e-5)
    assert np.all(np.diff([s.value for s in steps], axis=0) <= 1e-4)
    np.testing.assert_allclose(steps[-1].weights, m, atol=0.1)


@pytest.mark.parametrize("omega", OMEGAS[1:])
@pytest.mark.parametrize("beta", [10.0, 0.1, 1e-3])
def test_actions_without_reference_mass_stay_without_weight_however_good(omega, beta):
    q = np.tile(np.array([5.0, 0.0, 1.0, 0.5, 0.2, 4.0], np.float32), (ROWS, 1))
    m = np.tile(np.array([0.0, 0.25, 0.25, 0.25, 0.25, 0.0], np.float32), (ROWS, 1))
    step = solve(q, m, np.full(ROWS, beta, np.float32), omega=omega)
    assert np.all(step.weights[:, [0, 5]] == 0.0)
    np.testing.assert_allclose(step.weights.sum(axis=-1), 1.0, atol=1e-6)
    assert np.all(step.value >= 0.425 - 1e-5)
    assert np.all(step.value <= 1.0 + 1e-5)


@pytest.mark.parametrize("omega", OMEGAS)
def test_adding_a_constant_to_all_values_changes_nothing(omega):
    q, m, beta = random_case(2, spread=1.0)
    q = np.round(q * 64) / 64  # so that the sum below is exact in float32
    np.testing.assert_array_equal(
        solve(q + np.float32(1024), m, beta, omega=omega).weights, solve(q, m, beta, omega=omega).weights
    )


@pytest.mark.parametrize("omega", FEW_OMEGAS)
def test_equal_values_leave_the_reference_alone_at_any_step_size(omega):
    _, m, _ = random_case(4)
    q = np.full_like(m, 5.0)
    beta = beta_for(q, m, target=0.3, omega=omega, scope="state")
    for size in (beta, np.full(ROWS, 1.0, np.float32)):
        np.testing.assert_allclose(solve(q, m, size, omega=omega).weights, m, atol=1e-6)


@pytest.mark.parametrize("scope", ["state", "batch"])
@pytest.mark.parametrize("omega", FEW_OMEGAS)
def test_the_step_size_meets_its_target(omega, scope):
    rng = np.random.default_rng(8)
    q = rng.normal(size=(ROWS, ACTIONS)).astype(np.float32)
    m = np.full((ROWS, ACTIONS), 1 / ACTIONS, np.float32)
    for target in (0.01, 0.2):
        beta = beta_for(q, m, target=target, omega=omega, scope=scope)
        reached = np.asarray(solve(q, m, beta, omega=omega).divergence)
        if scope == "state":
            np.testing.assert_allclose(reached, target, rtol=1e-3)
        else:
            assert np.all(beta == beta[0])
            assert reached.mean() == pytest.approx(target, rel=1e-3)
            assert reached.std() > 0.05 * target, "with one beta, some states move further than others"


@pytest.mark.parametrize("scope", ["state", "batch"])
@pytest.mark.parametrize("omega", FEW_OMEGAS)
def test_the_step_size_scales_with_the_values(omega, scope):
    q, m, _ = random_case(9)
    once = beta_for(q, m, target=0.1, omega=omega, scope=scope)
    for factor in (1e-4, 1e4):
        scaled = beta_for(np.float32(factor) * q, m, target=0.1, omega=omega, scope=scope)
        np.testing.assert_allclose(scaled, factor * once, rtol=2e-3)


def test_a_step_size_from_the_update_before_needs_few_steps():
    q, m, _ = random_case(10)
    settled = beta_for(q, m, target=0.2, omega=0.9, scope="batch")
    warm = step_size_for(jnp.asarray(1.05 * q), jnp.asarray(m), 0.2, 0.9, "batch", start=settled, steps=2)
    np.testing.assert_allclose(warm, 1.05 * settled, rtol=1e-3)


@pytest.mark.parametrize("scope", ["state", "batch"])
@pytest.mark.parametrize("omega", FEW_OMEGAS)
def test_a_target_out_of_reach_gives_the_greedy_action(omega, scope):
    rng = np.random.default_rng(12)
    q = rng.permuted(np.tile(np.arange(ACTIONS, dtype=np.float32), (ROWS, 1)), axis=-1)
    m = np.full((ROWS, ACTIONS), 1 / ACTIONS, np.float32)
    beta = beta_for(q, m, target=50.0, omega=omega, scope=scope)
    assert np.all(beta > 0)
    weights = np.asarray(solve(q, m, beta, omega=omega).weights)
    np.testing.assert_allclose(weights, q == ACTIONS - 1, atol=1e-3)


@pytest.mark.parametrize("omega", OMEGAS)
def test_the_divergence_is_the_potentials_bregman_divergence(omega):
    def potential(p, omega):
        return jnp.sum(0.5 * (1.0 - omega) * p**2 + omega * jax.scipy.special.xlogy(p, p), axis=-1)

    with jax.enable_x64(True):
        rng = np.random.default_rng(1)
        p, m = rng.dirichlet(np.ones(ACTIONS), size=(2, ROWS))
        slope = jax.vmap(jax.grad(lambda x: potential(x, omega)))(jnp.asarray(m))
        bregman = potential(p, omega) - potential(m, omega) - jnp.sum(slope * (p - m), axis=-1)
        np.testing.assert_allclose(divergence(jnp.asarray(p), jnp.asarray(m), omega), bregman, atol=1e-12)
        np.testing.assert_allclose(divergence(jnp.asarray(p), jnp.asarray(p), omega), 0.0, atol=1e-15)


def test_wright_omega_agrees_with_scipy():
    x = np.concatenate([np.linspace(-60, 60, 2401), -np.geomspace(60, 700, 50), np.geomspace(60, 1e8, 50)])
    with jax.enable_x64(True):
        np.testing.assert_allclose(wright_omega(jnp.asarray(x)), scipy.special.wrightomega(x), rtol=1e-13)
    narrow = x[x > -80].astype(np.float32)
    expected = scipy.special.wrightomega(narrow.astype(np.float64))
    np.testing.assert_allclose(wright_omega(jnp.asarray(narrow)), expected, rtol=1e-5)


def test_wright_omega_has_the_slope_of_its_equation():
    with jax.enable_x64(True):
        x = jnp.linspace(-35.0, 35.0, 71)
        w = scipy.special.wrightomega(np.asarray(x))
        np.testing.assert_allclose(jax.vmap(jax.grad(wright_omega))(x), w / (1 + w), rtol=1e-12)
