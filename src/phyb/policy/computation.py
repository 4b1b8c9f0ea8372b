"""What a policy computes, as data: a list of operations on rows that writers of files turn into other languages.

An actor says it once, in `BaseActor.describe`, and gets every format of `phyb export`:

    mean = to.network(self.trunk, observations)
    return to.apply("tanh", mean)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from phyb.errors import UsageError
from phyb.networks import MLP, Standardizer

Kind = Literal[
    "matmul", "add", "subtract", "multiply", "divide", "maximum", "minimum",
    "tanh", "sigmoid", "relu", "exp", "log", "sqrt", "mean", "join", "columns", "select",
]  # fmt: skip
"""What one operation does to rows. `mean` is over the columns of each row, which keep one; `join` puts columns side by
side; `columns` takes those of the given numbers; `select` takes the second where the first, a constant, is true, else
the third. The others are the usual ones, entry by entry."""
Value: TypeAlias = str
"""The name of a result: rows of numbers."""
INPUT: Value = "observations"


class Operation(NamedTuple):
    """One step. Inputs are names of earlier results or of constants."""

    kind: Kind
    inputs: tuple[str, ...]
    output: Value


class Computation:
    """Operations in the order in which they are carried out, from rows of observations to the last result.

    Attributes:
        widths: numbers in one row of each result; that of the input is there from the start.
        operations: the steps.
        constants: arrays by name, float32 but for masks and column numbers.
    """

    def __init__(self, observation_size: int) -> None:
        self.widths: dict[Value, int] = {INPUT: observation_size}
        self.operations: list[Operation] = []
        self.constants: dict[str, np.ndarray] = {}

    @property
    def output(self) -> Value:
        """The last result."""
        return self.operations[-1].output if self.operations else INPUT

    def apply(self, kind: Kind, *inputs: Value | ArrayLike) -> Value:
        """Add one operation; whatever is not the name of a result is a constant.

        Raises:
            UsageError: there is no such operation, or no such result.
        """
        if kind not in get_args(Kind):
            raise UsageError(f"export: there is no operation {kind!r:.40}. Known are {', '.join(get_args(Kind))}.")
        names = tuple(self._name(given) for given in inputs)
        output = f"x{len(self.operations)}"
        self.widths[output] = self._width(kind, names)
        self.operations.append(Operation(kind, names, output))
        return output

    def network(self, mlp: MLP, *inputs: Value | ArrayLike, outputs: int | None = None) -> Value:
        """All layers of a network on its inputs side by side.

        Args:
            mlp: the network.
            inputs: results, or constant rows, which become part of the first layer's bias.
            outputs: take only so many of the outputs, the first ones; None takes all.

        Raises:
            UsageError: the activation is not known.
        """
        activate = _ACTIVATIONS.get(mlp.activation)
        if activate is None:
            known = ", ".join(each.__name__ for each in _ACTIVATIONS)
            found = getattr(mlp.activation, "__name__", mlp.activation)
            raise UsageError(f"export: the activation {found} is not known. Known are {known}.")
        weights, biases = ([np.asarray(array) for array in arrays] for arrays in (mlp.weights, mlp.biases))
        weights[-1], biases[-1] = weights[-1][:, :outputs], biases[-1][:outputs]
        widths = [self.widths[each] if isinstance(each, str) else len(np.asarray(each)) for each in inputs]
        parts = np.split(weights[0], np.cumsum(widths)[:-1])
        kept = [(each, part) for each, part in zip(inputs, parts, strict=True) if isinstance(each, str)]
        fixed = [np.asarray(each) @ part for each, part in zip(inputs, parts, strict=True) if not isinstance(each, str)]
        weights[0], biases[0] = np.concatenate([part for _, part in kept]), sum(fixed, biases[0])
        x = kept[0][0] if len(kept) == 1 else self.apply("join", *(name for name, _ in kept))
        for depth, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
            if depth > 0:
                x = self.normalize(activate(self, x)) if mlp.layer_norm else activate(self, x)
            x = self.apply("add", self.apply("matmul", x, weight), bias)
        return x

    def normalize(self, rows: Value) -> Value:
        """Each row with mean 0 and variance 1 over its numbers, as `phyb.networks.normalize` gives it."""
        centred = self.apply("subtract", rows, self.apply("mean", rows))
        variance = self.apply("mean", self.apply("multiply", centred, centred))
        return self.apply("divide", centred, self.apply("sqrt", self.apply("add", variance, 1e-6)))

    def standardize(self, units: Standardizer, rows: Value) -> Value:
        """Rows in units of their standard deviations, as `Standardizer` gives them."""
        scale = np.asarray(units.scale)
        known = scale != 0
        x = self.apply("divide", self.apply("subtract", rows, units.mean), np.where(known, scale, 1.0))
        return x if known.all() else self.apply("select", known, x, np.zeros(len(known)))

    def clip(self, rows: Value, low: ArrayLike, high: ArrayLike) -> Value:
        """Rows between bounds."""
        return self.apply("minimum", self.apply("maximum", rows, low), high)

    def _name(self, given: Value | ArrayLike) -> str:
        if isinstance(given, str):
            if given not in self.widths:
                raise UsageError(f"export: there is no result {given!r:.40}.")
            return given
        array = np.asarray(given)
        name = f"c{len(self.constants)}"
        self.constants[name] = array if array.dtype in (np.dtype(bool), np.dtype(np.int64)) else array.astype("f4")
        return name

    def _width(self, kind: Kind, names: tuple[str, ...]) -> int:
        widths = [self.widths[name] if name in self.widths else _columns(self.constants[name]) for name in names]
        if kind == "join":
            return sum(widths)
        if kind in ("matmul", "columns"):
            return widths[1]
        return 1 if kind == "mean" else max(widths)


def _columns(array: np.ndarray) -> int:
    return array.shape[-1] if array.ndim else 1


def _silu(to: Computation, x: Value) -> Value:
    return to.apply("multiply", x, to.apply("sigmoid", x))


def _gelu(to: Computation, x: Value) -> Value:
    """JAX's default, `x sigmoid(2 sqrt(2 / pi) (x + 0.044715 x^3))`, which is the one with tanh."""
    cube = to.apply("multiply", to.apply("multiply", x, x), x)
    inner = to.apply("add", x, to.apply("multiply", cube, np.float32(0.044715)))
    slope = np.float32(2.0 * np.sqrt(2.0 / np.pi))
    return to.apply("multiply", x, to.apply("sigmoid", to.apply("multiply", inner, slope)))


_ACTIVATIONS: dict[Any, Callable[[Computation, Value], Value]] = {
    jax.nn.relu: lambda to, x: to.apply("relu", x),
    jax.nn.silu: _silu,
    jnp.tanh: lambda to, x: to.apply("tanh", x),
    jax.nn.gelu: _gelu,
}
