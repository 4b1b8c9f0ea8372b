"""The multilayer perceptron that models, critics and actors share, and small helpers on trees of parameters."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from phyb.errors import UsageError

Tree = TypeVar("Tree")
Value = Callable[[Float[Array, "*rows obs"]], Float[Array, "*rows"]]
"""From observations to values."""


class MLP(eqx.Module):
    """Fully connected layers on a batch of rows; the activation stands between layers, not after the last."""

    weights: list[Float[Array, "inp out"]]
    biases: list[Float[Array, " out"]]
    activation: Callable[[Array], Array] = eqx.field(static=True)
    layer_norm: bool = eqx.field(static=True)
    """Whether each hidden layer is normalised after its activation; the next layer's weights serve as gain and bias."""

    def __init__(
        self,
        key: PRNGKeyArray,
        sizes: Sequence[int],
        activation: Callable[[Array], Array] = jax.nn.relu,
        *,
        layer_norm: bool = False,
    ) -> None:
        """Layers of the given `sizes`, input first.

        Weights are truncated normals of variance 2 / fan in (1 / fan in in the last layer). Biases are not zero but
        uniform within 1 / sqrt(fan in): with few inputs, hidden units that all bend at the origin resolve little.
        """
        layers = list(itertools.pairwise(sizes))
        self.weights, self.biases = [], []
        for depth, (inp, out) in enumerate(layers):
            weight_key, bias_key = jax.random.split(jax.random.fold_in(key, depth))
            gain = 2.0 if depth < len(layers) - 1 else 1.0
            self.weights.append(jnp.sqrt(gain / inp) * jax.random.truncated_normal(weight_key, -2.0, 2.0, (inp, out)))
            self.biases.append(jax.random.uniform(bias_key, (out,), minval=-1.0, maxval=1.0) / jnp.sqrt(float(inp)))
        self.activation, self.layer_norm = activation, layer_norm

    @property
    def inputs(self) -> int:
        """Numbers in one row of input."""
        return self.weights[0].shape[-2]

    @property
    def outputs(self) -> int:
        """Numbers in one row of output."""
        return self.weights[-1].shape[-1]

    @property
    def hidden(self) -> list[int]:
        """Units of each layer between them."""
        return [int(weight.shape[-1]) for weight in self.weights[:-1]]

    def __call__(self, rows: Float[Array, "*batch inp"]) -> Float[Array, "*batch out"]:
        """The output for each row of the batch."""
        return self.before_last(rows) @ self.weights[-1] + self.biases[-1]

    def before_last(self, rows: Float[Array, "*batch inp"]) -> Float[Array, "*batch hidden"]:
        """What the last layer is given: the last hidden layer, or the rows themselves if there is none."""
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            rows = self.activation(rows @ weight + bias)
            rows = normalize(rows) if self.layer_norm else rows
        return rows


def normalize(rows: Float[Array, "*batch dim"]) -> Float[Array, "*batch dim"]:
    """Each row with mean 0 and variance 1 over its numbers (layer normalisation without parameters)."""
    centred = rows - jnp.mean(rows, axis=-1, keepdims=True)
    return centred * jax.lax.rsqrt(jnp.mean(centred**2, axis=-1, keepdims=True) + 1e-6)


def parameter_count(sizes: tuple[int, ...]) -> int:
    """Weights and biases of a fully connected network."""
    return sum((inputs + 1) * outputs for inputs, outputs in itertools.pairwise(sizes))


class Standardizer(eqx.Module):
    """Maps columns to mean 0 and standard deviation 1; a constant column maps to 0 instead of dividing by it."""

    mean: Float[Array, " dim"]
    scale: Float[Array, " dim"]

    @classmethod
    def fit(cls, rows: Float[Array, "rows dim"]) -> Standardizer:
        """Mean and standard deviation of each column; the scale of a constant column is 0."""
        mean, std = jnp.mean(rows, axis=0), jnp.std(rows, axis=0)
        constant = jnp.ptp(rows, axis=0) <= 1e-6 * jnp.maximum(1.0, jnp.abs(mean))
        return cls(mean, jnp.where(constant, 0.0, std))

    def __call__(self, rows: Float[Array, "*batch dim"]) -> Float[Array, "*batch dim"]:
        """Standardised rows; constant columns become 0 whatever they hold."""
        known = self.scale != 0  # a scale that is not a number must show, not pass for a constant column
        return jnp.where(known, (rows - self.mean) / jnp.where(known, self.scale, 1.0), 0.0)

    def inverse(self, rows: Float[Array, "*batch dim"]) -> Float[Array, "*batch dim"]:
        """Back to original units; constant columns come back exactly."""
        return self.mean + self.scale * rows


def soft_clamp(
    x: Float[Array, "*dims"], low: float | Float[Array, "*dims"], high: float | Float[Array, "*dims"]
) -> Float[Array, "*dims"]:
    """A smooth clamp of x into (low, high) whose gradient never vanishes entirely."""
    x = high - jax.nn.softplus(high - x)
    return low + jax.nn.softplus(x - low)


def only_arrays(model: Tree, label: str) -> Tree:
    """The model, if it holds nothing but arrays and static fields, as transformations, optimisers and files need it.

    `label` begins the message of the `UsageError` if it does not.
    """
    for path, leaf in jax.tree_util.tree_leaves_with_path(model):
        if not eqx.is_array(leaf):
            place, found = jax.tree_util.keystr(path), type(leaf).__name__
            advice = "Declare it as eqx.field(static=True), or make it an array."
            raise UsageError(f"{label}: {type(model).__name__}{place} is a {found}, not an array. {advice}")
    return model


def take(tree: Tree, index: Array | int | tuple[Array, ...]) -> Tree:
    """Rows `index` of the first axis of every leaf: members of a stacked ensemble."""
    return jax.tree.map(lambda leaf: leaf[index], tree)


def select(condition: Array, new: Tree, old: Tree) -> Tree:
    """`new` where the condition holds, else `old`, leaf by leaf; a vector condition selects along the first axis."""

    def choose(a: Array, b: Array) -> Array:
        return jnp.where(condition.reshape(condition.shape + (1,) * (a.ndim - condition.ndim)), a, b)

    return jax.tree.map(choose, new, old)


def move_towards(old: Tree, new: Tree, rate: float) -> Tree:
    """Exponential moving average: old + rate (new - old), leaf by leaf."""
    return jax.tree.map(lambda a, b: a + rate * (b - a), old, new)


def start_optimizer(optimizer: optax.GradientTransformation, model: Any) -> optax.OptState:
    """The optimiser's state before its first step on this model."""
    return optimizer.init(model)


def gradient_step(
    optimizer: optax.GradientTransformation, gradient: Any, state: optax.OptState, model: Tree
) -> tuple[Tree, optax.OptState]:
    """One step of the optimiser: the new model and the new state."""
    change, state = optimizer.update(gradient, state, cast(Any, model))
    return cast(Tree, optax.apply_updates(cast(Any, model), change)), state


class SlowAverage(eqx.Module, Generic[Tree]):
    """A moving average that does not stall in float32.

    With a rate of 1e-5, `average + rate * (new - average)` rounds to `average` as soon as the gap is below about
    half a per cent of the weight. The rounding error of every step is kept and paid into the next one (Kahan).
    """

    average: Tree
    owed: Tree

    @classmethod
    def start(cls, model: Tree) -> SlowAverage[Tree]:
        """An average that begins at the model itself."""
        return cls(model, jax.tree.map(jnp.zeros_like, model))

    def towards(self, model: Tree, rate: float | Array) -> SlowAverage[Tree]:
        """One step of the average towards the model."""

        def step(average: Array, owed: Array, new: Array) -> tuple[Array, Array]:
            change = rate * (new - average) + owed
            moved = average + change
            return moved, change - (moved - average)

        pairs = jax.tree.map(step, self.average, self.owed, model)
        is_pair = lambda node: isinstance(node, tuple)  # noqa: E731
        return SlowAverage(
            jax.tree.map(lambda pair: pair[0], pairs, is_leaf=is_pair),
            jax.tree.map(lambda pair: pair[1], pairs, is_leaf=is_pair),
        )
