"""A computation is data: what networks and units become as operations, read here by NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from phyb.deploy import numpy_module, onnx_file
from phyb.errors import UsageError
from phyb.networks import MLP, Standardizer
from phyb.policy.computation import INPUT, Computation

ROWS = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
ABOUT = {"phyb_version": "test"}


def results(computation):
    """What both kinds of file give."""
    return [
        load(to_bytes(computation, ABOUT))(ROWS)
        for to_bytes, load in ((onnx_file.to_bytes, onnx_file.load), (numpy_module.to_bytes, numpy_module.load))
    ]


def test_every_operation_means_the_same_in_every_format():
    to = Computation(4)
    square = to.apply("multiply", INPUT, INPUT)
    root = to.apply("sqrt", square)
    grown = to.apply("log", to.apply("add", to.apply("exp", INPUT), 1.0))
    clipped = to.apply("minimum", to.apply("maximum", INPUT, [-0.5, 0.0, 0.1, 0.2]), 1.0)
    quotient = to.apply("divide", to.apply("relu", to.apply("subtract", INPUT, root)), 2.0)
    kept = to.apply("select", np.array([True, False, True, False]), to.apply("sigmoid", INPUT), to.apply("tanh", INPUT))
    product = to.apply("matmul", INPUT, np.arange(8.0).reshape(4, 2))
    chosen = to.apply("columns", INPUT, np.array([3, 1]))
    parts = (square, root, grown, clipped, quotient, kept, product, chosen, to.apply("mean", INPUT))
    assert to.widths[to.apply("join", *parts)] == 4 * 6 + 2 + 2 + 1
    x = ROWS.astype(np.float64)
    wanted = np.concatenate(
        [
            x**2,
            np.abs(x),
            np.log(np.exp(x) + 1.0),
            np.clip(x, [-0.5, 0.0, 0.1, 0.2], 1.0),
            np.maximum(x - np.abs(x), 0.0) / 2.0,
            np.where([True, False, True, False], 1.0 / (1.0 + np.exp(-x)), np.tanh(x)),
            x @ np.arange(8.0).reshape(4, 2),
            x[:, [3, 1]],
            x.mean(axis=1, keepdims=True),
        ],
        axis=1,
    )
    for found in results(to):
        np.testing.assert_allclose(found, wanted, atol=1e-5)


@pytest.mark.parametrize("activation", [jax.nn.relu, jax.nn.silu, jnp.tanh, jax.nn.gelu])
def test_a_network_of_any_known_activation_takes_results_and_constant_rows(activation):
    network = MLP(jax.random.key(0), (4 + 3 + 4, 16, 16, 6), activation, layer_norm=activation is not jnp.tanh)
    fixed = np.array([0.5, -1.0, 2.0], np.float32)
    to = Computation(4)
    to.network(network, INPUT, fixed, to.apply("tanh", INPUT), outputs=2)
    inputs = np.concatenate([ROWS, np.tile(fixed, (50, 1)), np.tanh(ROWS)], axis=1)
    for found in results(to):
        np.testing.assert_allclose(found, network(jnp.asarray(inputs))[:, :2], atol=1e-5)


def test_constant_columns_become_zero_whatever_they_hold():
    units = Standardizer(jnp.array([0.0, 1.0, 2.0, 3.0]), jnp.array([1.0, 0.0, 2.0, 0.0]))
    to = Computation(4)
    to.standardize(units, INPUT)
    for found in results(to):
        np.testing.assert_allclose(found, units(jnp.asarray(ROWS)), atol=1e-6)
        assert not found[:, [1, 3]].any()


def test_what_is_not_known_is_refused():
    to = Computation(4)
    with pytest.raises(UsageError, match="no operation 'cosine'"):
        to.apply("cosine", INPUT)  # pyright: ignore[reportArgumentType]
    with pytest.raises(UsageError, match="no result 'x7'"):
        to.apply("tanh", "x7")
    with pytest.raises(UsageError, match=r"activation sin is not known. Known are relu, silu"):
        to.network(MLP(jax.random.key(0), (4, 2, 1), jnp.sin), INPUT)
