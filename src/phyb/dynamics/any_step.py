"""The any-step model: recurrent, from the first state of a window and all its actions to its end (Lin et al., 2025).

    f(s_{t-k+1}, a_{t-k+1}, ..., a_t)  ->  Gaussian over (s_{t+1} - s_{t-k+1}, r_t),    k = 1 .. K

Windows are rows of the log that follow one another in one episode; they are looked up, never copied. As a model of one
step, which is all that most of this library asks for, k is 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from phyb.dynamics.model import DynamicsModel, Heads, cross_entropy, gaussian_nll
from phyb.dynamics.pool import Pool, Prediction
from phyb.dynamics.rows import Rows
from phyb.networks import MLP, soft_clamp, take

BLOCKS = 4
"""Residual blocks after the recurrent layers."""
DROPOUT = 0.1
"""Share of the units of a block that a step of training leaves out."""


class Windows(NamedTuple):
    """Rows that follow one another, in standardised units, and where they have led after each step."""

    first: Float[Array, "rows obs"]
    actions: Float[Array, "rows steps act"]
    targets: Float[Array, "rows steps out"]
    """Change of the state since the first one, and the reward of that step alone."""
    done: Bool[Array, "rows steps"]
    length: Int[Array, " rows"]
    """Steps that lie in the episode; what comes after them has no meaning."""


def windows(rows: Rows, starts: Int[Array, " some"], steps: int) -> Windows:
    """The windows that begin at these rows; no longer than what is left of the episode.

    Standardised changes of single steps, `(change - mean) / scale`, add up to that of several, which therefore is 0
    where every step changes a number alike.
    """
    ahead = jnp.arange(steps)
    at = jnp.minimum(starts[:, None] + ahead, rows.done.shape[0] - 1)
    inside = rows.steps_before[at] == rows.steps_before[starts][:, None] + ahead
    inputs, targets = rows.inputs[at], rows.targets[at]
    change = jnp.cumsum(targets[..., :-1], axis=1)
    size = change.shape[-1]
    return Windows(
        inputs[:, 0, :size],
        inputs[..., size:],
        jnp.concatenate([change, targets[..., -1:]], axis=-1),
        rows.done[at],
        jnp.sum(inside, axis=1),
    )


class GRU(eqx.Module):
    """A layer of gated recurrent units that starts from zeros.

    With x an input and h the state, in parts for reset r, update z and proposal n of `x W + b` and `h U + d`:

        r = sigmoid(x W_r + b_r + h U_r + d_r),    n = tanh(x W_n + b_n + r (h U_n + d_n)),
        z = sigmoid(x W_z + b_z + h U_z + d_z),    h <- (1 - z) n + z h.
    """

    from_inputs: Float[Array, "inp gates"]
    from_states: Float[Array, "units gates"]
    input_bias: Float[Array, " gates"]
    state_bias: Float[Array, " gates"]

    def __init__(self, key: PRNGKeyArray, inputs: int, units: int) -> None:
        """Weights and biases are uniform within 1 / sqrt(units)."""

        def draw(number: int, *shape: int) -> Array:
            within = 1.0 / units**0.5
            return jax.random.uniform(
                jax.random.fold_in(key, number), (*shape, 3 * units), minval=-within, maxval=within
            )

        self.from_inputs, self.from_states, self.input_bias, self.state_bias = (
            draw(0, inputs), draw(1, units), draw(2), draw(3)
        )  # fmt: skip

    def __call__(self, rows: Float[Array, "steps *rows inp"]) -> Float[Array, "steps *rows units"]:
        """The states after each step."""

        def step(state: Array, given: Array) -> tuple[Array, Array]:
            from_input = jnp.split(given, 3, axis=-1)
            from_state = jnp.split(state @ self.from_states + self.state_bias, 3, axis=-1)
            reset, update = (jax.nn.sigmoid(a + b) for a, b in zip(from_input[:2], from_state[:2], strict=True))
            proposal = jnp.tanh(from_input[2] + reset * from_state[2])
            after = (1.0 - update) * proposal + update * state
            return after, after

        given = rows @ self.from_inputs + self.input_bias
        start = jnp.zeros((*rows.shape[1:-1], self.from_states.shape[0]))
        return jax.lax.scan(step, start, given)[1]


class Block(eqx.Module):
    """`x <- normalise(x + dropout(swish(x W + b)))`, normalised over the units of each row, then scaled and shifted."""

    layer: MLP
    gain: Float[Array, " units"]
    shift: Float[Array, " units"]

    def __init__(self, key: PRNGKeyArray, units: int) -> None:
        self.layer = MLP(key, (units, units))
        self.gain, self.shift = jnp.ones(units), jnp.zeros(units)

    def __call__(self, rows: Float[Array, "*rows units"], key: PRNGKeyArray | None) -> Float[Array, "*rows units"]:
        """The rows after the block; without a key nothing is left out."""
        change = jax.nn.silu(self.layer(rows))
        if key is not None:
            change = jnp.where(jax.random.bernoulli(key, 1.0 - DROPOUT, change.shape), change / (1.0 - DROPOUT), 0.0)
        rows = rows + change
        centred = rows - jnp.mean(rows, axis=-1, keepdims=True)
        return self.gain * centred * jax.lax.rsqrt(jnp.mean(centred**2, axis=-1, keepdims=True) + 1e-5) + self.shift


class AnyStepModel(DynamicsModel):
    """Recurrent layers read the actions, each beside the first state; residual blocks lead to the heads."""

    recurrent: list[GRU]
    blocks: list[Block]
    last: MLP
    min_log_std: Float[Array, " out"]
    max_log_std: Float[Array, " out"]
    window: int = eqx.field(static=True)
    """K, most steps at once."""

    def __init__(self, key: PRNGKeyArray, inputs: int, outputs: int, hidden: Sequence[int], window: int = 1) -> None:
        """Fresh weights, with one recurrent layer per entry of `hidden`; the blocks are as wide as the last of them."""
        keys = list(jax.random.split(key, len(hidden) + BLOCKS + 1))
        widths = [inputs, *hidden]
        self.recurrent = [GRU(keys.pop(), *pair) for pair in zip(widths, hidden, strict=False)]
        self.blocks = [Block(keys.pop(), widths[-1]) for _ in range(BLOCKS)]
        self.last = MLP(keys.pop(), (widths[-1], 2 * outputs + 1))
        self.min_log_std = jnp.full(outputs, -5.0, jnp.float32)
        self.max_log_std = jnp.full(outputs, 1.0, jnp.float32)
        self.window = window

    def __call__(self, rows: Float[Array, "*rows inp"]) -> Heads:
        """What one step leads to."""
        size = self.min_log_std.shape[0] - 1
        return self.heads(self.read(rows[..., :size], rows[..., None, size:])[-1])

    def read(
        self, first: Float[Array, "*rows obs"], actions: Float[Array, "*rows steps act"]
    ) -> Float[Array, "steps *rows units"]:
        """The recurrent layers' states after each of the actions."""
        taken = jnp.moveaxis(actions, -2, 0)
        states = jnp.concatenate([jnp.broadcast_to(first, (*taken.shape[:-1], first.shape[-1])), taken], axis=-1)
        for layer in self.recurrent:
            states = layer(states)
        return states

    def heads(self, states: Float[Array, "*rows units"], key: PRNGKeyArray | None = None) -> Heads:
        """What the recurrent layers' states say; with a key, some units of the blocks are left out."""
        for number, block in enumerate(self.blocks):
            states = block(states, None if key is None else jax.random.fold_in(key, number))
        out, size = self.last(states), self.min_log_std.shape[0]
        log_std = soft_clamp(out[..., size : 2 * size], self.min_log_std, self.max_log_std)
        return Heads(out[..., :size], log_std, out[..., -1])

    def training_loss(
        self, key: PRNGKeyArray, rows: Rows, chosen: Int[Array, " batch"], **weights: float
    ) -> Float[Array, ""]:
        """The loss on windows that begin at the chosen rows, of length k ~ U{1 .. K} or what is left of the episode."""
        length_key, dropout_key = jax.random.split(key)
        seen = windows(rows, chosen, self.window)
        wanted = jax.random.randint(length_key, chosen.shape, 1, self.window + 1)
        last, row = jnp.minimum(wanted, seen.length) - 1, jnp.arange(len(chosen))
        heads = self.heads(self.read(seen.first, seen.actions)[last, row], dropout_key)
        return self.loss_of(heads, seen.targets[row, last], seen.done[row, last], **weights)

    def holdout_nll(self, rows: Rows) -> tuple[Float[Array, "rows out"], Float[Array, " rows"]]:
        """The same of the windows that begin at each row, as the mean over all their lengths."""
        seen = windows(rows, jnp.arange(rows.done.shape[0]), self.window)
        heads = self.heads(jnp.moveaxis(self.read(seen.first, seen.actions), 0, 1))
        counts = jnp.arange(self.window) < seen.length[:, None]
        by_output = gaussian_nll(heads, seen.targets)
        ends = cross_entropy(heads.done_logit, seen.done)
        return jnp.mean(by_output, axis=1, where=counts[..., None]), jnp.mean(ends, axis=1, where=counts)

    def penalty(self) -> Float[Array, ""]:
        """Mean distance of the bounds of the log-std."""
        return jnp.mean(self.max_log_std - self.min_log_std)


def look_back(
    pool: Pool,
    member: Int[Array, ""],
    observations: Float[Array, "rows window obs"],
    actions: Float[Array, "rows window act"],
    key: PRNGKeyArray | None = None,
) -> Prediction:
    """What a member predicts of the last action when it starts from 1, 2, ..., K steps back, in the units of the log.

    Lengths are the first axis. With a key, some units of the network are left out.
    """
    model, steps = take(pool.members, member), observations.shape[1]
    assert isinstance(model, AnyStepModel)
    rows, size = pool.inputs(jnp.concatenate([observations, actions], axis=-1)), observations.shape[-1]

    def from_back(length: int) -> Prediction:
        first = steps - length
        states = model.read(rows[:, first, :size], rows[:, first:, size:])[-1]
        heads = model.heads(states, None if key is None else jax.random.fold_in(key, length))
        return pool.in_units(heads, observations[:, first], length)

    return jax.tree.map(lambda *parts: jnp.stack(parts), *(from_back(length + 1) for length in range(steps)))
