"""The shared network, the standardiser, and averages of parameters."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from phyb.networks import MLP, SlowAverage, Standardizer, move_towards, select, soft_clamp, take


class Weights(eqx.Module):
    """Something to average."""

    numbers: jax.Array


@pytest.mark.parametrize("hidden", [(), (8,), (8, 8)])
@pytest.mark.parametrize("batch", [(), (2, 4)])
def test_mlp_maps_the_last_axis_and_keeps_the_others(hidden, batch):
    network = MLP(jax.random.key(0), (3, *hidden, 2))
    rows = jnp.ones((*batch, 3))
    assert network(rows).shape == (*batch, 2)
    assert [w.shape for w in network.weights] == list(zip((3, *hidden), (*hidden, 2), strict=True))


def test_mlp_is_its_layers_with_the_activation_between_them():
    network = MLP(jax.random.key(0), (3, 8, 2), jnp.tanh)
    rows = jnp.asarray(np.random.default_rng(0).normal(size=(5, 3)), jnp.float32)
    (w0, w1), (b0, b1) = (jax.device_get(x) for x in (network.weights, network.biases))
    np.testing.assert_allclose(network(rows), np.tanh(rows @ w0 + b0) @ w1 + b1, rtol=1e-5, atol=1e-6)


def test_layer_normalisation_follows_each_activation_but_not_the_output():
    rows = jax.random.normal(jax.random.key(1), (6, 3))
    network = MLP(jax.random.key(0), (3, 8, 5, 2), layer_norm=True)
    hidden = np.asarray(rows)
    for weight, bias in zip(network.weights[:-1], network.biases[:-1], strict=True):
        hidden = np.maximum(hidden @ np.asarray(weight) + np.asarray(bias), 0.0)
        hidden = (hidden - hidden.mean(-1, keepdims=True)) / np.sqrt(hidden.var(-1, keepdims=True) + 1e-6)
    np.testing.assert_allclose(network(rows), hidden @ network.weights[-1] + network.biases[-1], rtol=1e-4, atol=1e-5)


def test_mlp_keeps_the_scale_of_its_inputs_and_differs_by_key():
    rows = jnp.asarray(np.random.default_rng(0).normal(size=(256, 64)), jnp.float32)
    one, other = (MLP(jax.random.key(k), (64, 64, 64, 64))(rows) for k in (1, 2))
    assert 0.3 < float(jnp.std(one)) < 3.0
    assert float(jnp.abs(one - other).max()) > 0.1


def test_standardized_columns_have_mean_0_and_deviation_1_and_come_back():
    rows = jnp.asarray(np.random.default_rng(0).normal([5.0, -300.0], [0.01, 40.0], (1000, 2)), jnp.float32)
    standardizer = Standardizer.fit(rows)
    standard = standardizer(rows)
    np.testing.assert_allclose(jnp.mean(standard, axis=0), 0.0, atol=1e-3)
    np.testing.assert_allclose(jnp.std(standard, axis=0), 1.0, rtol=1e-3)
    np.testing.assert_allclose(standardizer.inverse(standard), rows, rtol=1e-5)


@given(constant=st.floats(-1e6, 1e6, width=32, allow_subnormal=False), elsewhere=st.floats(-1e6, 1e6, width=32))
@settings(max_examples=15, deadline=None)
def test_constant_columns_become_0_and_come_back_exactly(constant, elsewhere):
    rows = np.stack([np.full(37, constant), np.arange(37)], axis=1).astype(np.float32)
    standardizer = Standardizer.fit(jnp.asarray(rows))
    unseen = jnp.array([[elsewhere, 3.0]], jnp.float32)
    assert standardizer(unseen)[0, 0] == 0.0
    assert np.all(np.isfinite(standardizer(unseen)))
    back = standardizer.inverse(jnp.array([[7.0, 0.0]]))[0, 0]
    np.testing.assert_allclose(back, constant, rtol=1e-6)
    slope = jax.grad(lambda row: jnp.sum(standardizer(row)))(unseen[0])
    assert np.all(np.isfinite(slope))


@given(
    xs=hnp.arrays(np.float32, 20, elements=st.floats(-1e4, 1e4, width=32)),
    low=st.floats(-8, -1, width=32),
    width=st.floats(1, 8, width=32),
)
@settings(max_examples=25, deadline=None)
def test_soft_clamp_stays_between_its_bounds_and_is_monotone(xs, low, width):
    high = low + width
    clamped = np.asarray(soft_clamp(jnp.asarray(np.sort(xs)), low, high))
    assert np.all(clamped >= low - 1e-5)
    # The lower clamp lifts the upper bound a little; the lift at the top is log(1 + exp(-width)).
    assert np.all(clamped <= high + np.log1p(np.exp(-width)) + 1e-5)
    assert np.all(np.diff(clamped) >= -1e-5)


def test_soft_clamp_leaves_the_middle_alone_and_keeps_a_gradient():
    assert float(soft_clamp(jnp.float32(0.0), -20.0, 20.0)) == pytest.approx(0.0, abs=1e-5)
    assert float(jax.grad(lambda x: soft_clamp(x, -4.0, 1.0))(5.0)) > 0
    assert float(jax.grad(lambda x: soft_clamp(x, -4.0, 1.0))(-9.0)) > 0


def test_take_picks_members_and_select_chooses_leaf_by_leaf():
    old = {"a": jnp.zeros((3, 2)), "b": jnp.zeros(3)}
    new = {"a": jnp.arange(6.0).reshape(3, 2) + 1, "b": jnp.arange(3.0) + 1}
    taken = take(new, jnp.array([2, 0, 2]))
    np.testing.assert_array_equal(taken["a"], [[5, 6], [1, 2], [5, 6]])
    np.testing.assert_array_equal(taken["b"], [3, 1, 3])
    chosen = select(jnp.array([True, False, True]), new, old)
    np.testing.assert_array_equal(chosen["a"], [[1, 2], [0, 0], [5, 6]])
    np.testing.assert_array_equal(chosen["b"], [1, 0, 3])
    np.testing.assert_array_equal(select(jnp.array(False), new, old)["a"], old["a"])


def test_move_towards_covers_its_share_of_the_gap():
    moved = move_towards({"w": jnp.array([0.0, 4.0])}, {"w": jnp.array([1.0, 0.0])}, 0.25)
    np.testing.assert_allclose(moved["w"], [0.25, 3.0])


def test_slow_average_follows_the_closed_form_where_a_plain_float32_average_stalls():
    rate, steps = 1e-5, 200_000
    start = np.array([1.0, -3.0, 0.02, 1.0, 100.0], np.float32)
    goal = np.array([1.002, -3.01, 0.0201, 0.9999, 100.3], np.float32)

    @jax.jit
    def run(model, target):
        def step(_, carry):
            slow, plain = carry
            return slow.towards(target, rate), move_towards(plain, target, rate)

        return jax.lax.fori_loop(0, steps, step, (SlowAverage.start(model), model))

    slow, plain = run(Weights(jnp.asarray(start)), Weights(jnp.asarray(goal)))
    gap = goal.astype(np.float64) - start
    expected = gap * -np.expm1(steps * np.log1p(-rate))
    rounding = 2.0 * np.spacing(np.abs(start))
    assert np.all(np.abs(slow.average.numbers - start.astype(np.float64) - expected) < 1e-3 * np.abs(gap) + rounding)
    assert np.all(np.abs(plain.numbers - start) < 0.7 * np.abs(expected)), "so the compensation is needed"


def test_slow_average_starts_at_the_model_and_reaches_it_at_rate_1():
    model, other = Weights(jnp.array([1.0, 2.0])), Weights(jnp.array([3.0, -4.0]))
    slow = SlowAverage.start(model)
    np.testing.assert_array_equal(slow.average.numbers, model.numbers)
    np.testing.assert_array_equal(slow.towards(other, 1.0).average.numbers, other.numbers)
    np.testing.assert_allclose(slow.towards(other, 0.5).average.numbers, [2.0, -1.0])
