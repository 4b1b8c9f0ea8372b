"""The any-step model against plain NumPy: its windows, its forward pass, its losses, and what it says looking back."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phyb.algorithms.settings import preset
from phyb.dynamics import any_step
from phyb.dynamics.any_step import AnyStepModel, look_back, windows
from phyb.dynamics.fit import Keeping, PoolConfig, fit_pool
from phyb.dynamics.pool import Pool
from phyb.dynamics.rows import Rows
from phyb.errors import InterruptedRunError, UsageError
from phyb.interrupt import StopRequests
from phyb.networks import Standardizer
from phyb.storage.store import Store

OBS, ACT, WINDOW = 2, 1, 3
TINY = PoolConfig(model="any-step", model_window=WINDOW, pool_size=1, model_hidden=(6,), model_batch_size=16,
                  model_steps=30, model_check_every=10)  # fmt: skip


def episodes(lengths, seed=0):
    """Rows of episodes of these lengths (unstandardised), the states they lead to, and how many rows are left."""
    generator, parts = np.random.default_rng(seed), []
    for length in lengths:
        states = generator.normal(size=(length + 1, OBS)).astype(np.float32)
        actions, rewards = generator.normal(size=(length, ACT)), generator.normal(size=(length, 1))
        before = np.arange(length)
        inputs, targets = np.hstack([states[:-1], actions]), np.hstack([np.diff(states, axis=0), rewards])
        parts.append((inputs, targets, before == length - 1, before, states[1:], length - before))
    inputs, targets, done, before, after, left = (np.concatenate(column) for column in zip(*parts, strict=True))
    return Rows(jnp.float32(inputs), jnp.float32(targets), jnp.asarray(done), jnp.int32(before)), after, left


COUNT, AHEAD = 16, 4
windows_of_all = jax.jit(lambda rows: windows(rows, jnp.arange(COUNT), AHEAD))


@given(ends=st.sets(st.integers(1, COUNT - 1)))
@settings(max_examples=40, deadline=None)
def test_windows_stay_inside_their_episode_and_tell_the_change_since_their_first_state(ends):
    rows, after, left = episodes(np.diff([0, *sorted(ends), COUNT]))
    seen = windows_of_all(rows)
    inputs, targets, done = (np.asarray(part) for part in rows[:3])
    told, actions, ended = (np.asarray(part) for part in (seen.targets, seen.actions, seen.done))
    np.testing.assert_array_equal(seen.length, np.minimum(left, AHEAD))
    np.testing.assert_array_equal(seen.first, inputs[:, :OBS])
    for ahead in range(AHEAD):
        starts = np.flatnonzero(left > ahead)
        reached = starts + ahead
        change = after[reached] - inputs[starts, :OBS]
        np.testing.assert_allclose(told[starts, ahead, :OBS], change, rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(told[starts, ahead, OBS], targets[reached, OBS])  # of that step alone
        np.testing.assert_array_equal(actions[starts, ahead], inputs[reached, OBS:])
        np.testing.assert_array_equal(ended[starts, ahead], done[reached])


# --- The network ---


def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


def softplus(x):
    return np.log1p(np.exp(x))


def forward(model, first, actions):
    """Mean, log-std and logit after all actions of one window, in float64 and by hand."""
    plain = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), model)
    inputs = [np.concatenate([first, action]) for action in actions]
    for layer in plain.recurrent:
        units = layer.from_states.shape[0]
        h, states = np.zeros(units), []
        for x in inputs:
            of_x, of_h = x @ layer.from_inputs + layer.input_bias, h @ layer.from_states + layer.state_bias
            r = sigmoid(of_x[:units] + of_h[:units])
            z = sigmoid(of_x[units : 2 * units] + of_h[units : 2 * units])
            n = np.tanh(of_x[2 * units :] + r * of_h[2 * units :])
            h = (1 - z) * n + z * h
            states.append(h)
        inputs = states
    x = inputs[-1]
    for block in plain.blocks:
        change = x @ block.layer.weights[0] + block.layer.biases[0]
        x = x + change * sigmoid(change)
        x = block.gain * (x - x.mean()) / np.sqrt(x.var() + 1e-5) + block.shift
    out, size = x @ plain.last.weights[0] + plain.last.biases[0], OBS + 1
    raw, low, high = out[size : 2 * size], plain.min_log_std, plain.max_log_std
    capped = high - softplus(high - raw)
    return out[:size], low + softplus(capped - low), out[-1]


def nll(model, rows, start, steps):
    """Negative log-likelihood of each number, and of the end, of one window, from the rows as they are."""
    inputs, targets = np.asarray(rows.inputs, np.float64), np.asarray(rows.targets, np.float64)
    end = start + steps
    mean, log_std, logit = forward(model, inputs[start, :OBS], inputs[start:end, OBS:])
    target = np.append(targets[start:end, :OBS].sum(axis=0), targets[end - 1, OBS])
    return 0.5 * ((target - mean) / np.exp(log_std)) ** 2 + log_std, softplus(-logit if rows.done[end - 1] else logit)


@pytest.fixture(scope="module")
def model():
    fresh = AnyStepModel(jax.random.key(0), OBS + ACT, OBS + 1, (5, 4), WINDOW)
    leaves, tree = jax.tree.flatten(fresh)  # biases, gains and bounds of their own
    keys = jax.random.split(jax.random.key(1), len(leaves))
    leaves = [leaf + 0.2 * jax.random.normal(key, leaf.shape) for leaf, key in zip(leaves, keys, strict=True)]
    return jax.tree.unflatten(tree, leaves)


ROWS, _, LEFT = episodes([4, 1, 2, 5])


def test_the_holdout_loss_is_the_mean_over_all_windows_that_begin_at_a_row(model):
    by_output, ends = jax.jit(lambda: model.holdout_nll(ROWS))()
    for start, left in enumerate(LEFT):
        found = [nll(model, ROWS, start, steps) for steps in range(1, min(left, WINDOW) + 1)]
        numbers, logits = (np.mean(part, axis=0) for part in zip(*found, strict=True))
        np.testing.assert_allclose(by_output[start], numbers, rtol=2e-3, atol=1e-4)
        np.testing.assert_allclose(ends[start], logits, rtol=2e-3, atol=1e-4)


def test_training_draws_lengths_evenly_up_to_the_end_of_the_episode(model, monkeypatch):
    monkeypatch.setattr(any_step, "DROPOUT", 0.0)
    weights = {"nll_beta": 0.0, "bound_weight": 0.5, "done_weight": 2.0}
    bound = 0.5 * float(np.mean(model.max_log_std - model.min_log_std))
    many = jax.vmap(lambda key, start: model.training_loss(key, ROWS, start[None], **weights), (0, None))
    losses_at, keys = jax.jit(many), jax.random.split(jax.random.key(2), 300)
    for start, left in ((0, 3), (2, 2), (4, 1)):
        parts = [nll(model, ROWS, start, steps) for steps in range(1, left + 1)]
        expected = np.array([np.mean(numbers) + 2.0 * end + bound for numbers, end in parts])
        losses = np.asarray(losses_at(keys, jnp.asarray(start)))
        nearest = np.argmin(np.abs(losses[:, None] - expected), axis=1)
        np.testing.assert_allclose(losses, expected[nearest], rtol=2e-3)
        assert np.all(np.bincount(nearest, minlength=left) > 60)


def test_with_a_window_of_one_it_is_a_model_of_one_step(model, monkeypatch):
    monkeypatch.setattr(any_step, "DROPOUT", 0.0)
    blank = jax.eval_shape(lambda: AnyStepModel(jax.random.key(0), OBS + ACT, OBS + 1, (5, 4)))
    one, chosen = jax.tree.unflatten(jax.tree.structure(blank), jax.tree.leaves(model)), jnp.array([0, 3, 3, 7])
    weights = {"nll_beta": 1.0, "bound_weight": 0.1, "done_weight": 1.0}
    batch = (ROWS.inputs[chosen], ROWS.targets[chosen], ROWS.done[chosen])
    losses = jax.jit(lambda key: (one.training_loss(key, ROWS, chosen, **weights), one.loss(*batch, **weights)))
    np.testing.assert_allclose(*losses(jax.random.key(1)), rtol=1e-5)
    expected = forward(model, np.asarray(ROWS.inputs[3, :OBS]), np.asarray(ROWS.inputs[3:4, OBS:]))
    for told, number in zip(jax.jit(lambda row: model(row))(ROWS.inputs[3:4]), expected, strict=True):
        np.testing.assert_allclose(told[0], number, rtol=2e-3, atol=1e-4)


def test_units_are_left_out_only_where_a_key_is_given(model):
    states = jnp.ones((400, 4))
    whole, other = jax.jit(lambda key: (model.heads(states), model.heads(states, key)))(jax.random.key(0))
    np.testing.assert_allclose(whole.mean, jnp.broadcast_to(whole.mean[0], whole.mean.shape), rtol=1e-5)
    assert float(jnp.min(jnp.std(other.mean, axis=0))) > 0.0
    block = model.blocks[0]
    few = len(np.unique(np.round(np.asarray(block(states, jax.random.key(1))), 4), axis=0))
    assert 4 < few <= 16, "each of 4 units is there or not"


# --- Looking back ---


@pytest.fixture(scope="module")
def pool(model):
    """A pool whose second number is a clock: every step adds 2."""
    stacked = jax.tree.map(lambda leaf: jnp.stack([jnp.zeros_like(leaf), leaf]), model)
    outputs = Standardizer(jnp.array([0.3, 2.0, -1.0]), jnp.array([0.5, 0.0, 3.0]))
    return Pool(stacked, Standardizer(jnp.array([1.0, 0.0, 0.5]), jnp.array([2.0, 1.0, 0.5])), outputs, jnp.zeros(2))


def test_looking_back_predicts_from_the_state_so_many_steps_ago(model, pool):
    generator = np.random.default_rng(3)
    states, actions = generator.normal(size=(4, WINDOW, OBS)), generator.normal(size=(4, WINDOW, ACT))
    told = jax.jit(look_back)(pool, jnp.asarray(1), jnp.float32(states), jnp.float32(actions))
    for length in range(1, WINDOW + 1):
        first = states[:, -length]
        for row in range(4):
            standard = (first[row] - [1.0, 0.0]) / [2.0, 1.0]
            mean, log_std, _ = forward(model, standard, (actions[row, WINDOW - length :] - 0.5) / 0.5)
            at = length - 1, row
            np.testing.assert_allclose(told.next_mean[at][0], first[row, 0] + length * 0.3 + 0.5 * mean[0], rtol=2e-3)
            np.testing.assert_allclose(told.next_mean[at][1], first[row, 1] + length * 2.0, rtol=1e-5)
            np.testing.assert_allclose(told.next_std[at][0], 0.5 * np.exp(log_std[0]), rtol=2e-3)
            np.testing.assert_allclose(told.reward_mean[at], 3.0 * mean[2] - 1.0, rtol=5e-3, atol=1e-3)
    one = pool.predict(jnp.array([1]), jnp.float32(states[:, -1]), jnp.float32(actions[:, -1]))
    for back, single in zip(told, one, strict=True):
        np.testing.assert_allclose(back[0], single[0], rtol=1e-5, atol=1e-6)


# --- Training ---


@pytest.fixture(scope="module")
def log(linear_log):
    return linear_log(episodes=60, steps=6)


def test_it_learns_to_predict_several_steps_at_once(log):
    steps = {"model_steps": 300, "model_check_every": 150, "model_learning_rate": 1e-2}
    config = dataclasses.replace(TINY, model_hidden=(16,), **steps)
    pool, curve = fit_pool(log, config, 0)
    assert curve[-1].loss < curve[0].loss
    ends = np.flatnonzero(log.steps_before() >= WINDOW - 1)
    at = ends[:, None] + np.arange(1 - WINDOW, 1)
    told = jax.jit(look_back)(pool, jnp.asarray(0), jnp.asarray(log.observations[at]), jnp.asarray(log.actions[at]))
    off = np.sqrt(np.mean((told.next_mean - log.next_observations[ends]) ** 2, axis=1))
    still = np.sqrt(np.mean((log.observations[at[:, ::-1].T] - log.next_observations[ends]) ** 2, axis=1))
    assert np.all(off[:, 0] < 0.7 * still[:, 0])
    assert np.all(off[1:, 1] < 0.9 * still[1:, 1])  # most of one step is noise
    np.testing.assert_allclose(off[:, 2], 0.0, atol=1e-5)  # never changes


class _StopAfter(StopRequests):
    """Asks to stop at the given number of questions, and at all after."""

    def __init__(self, questions):
        self.left = questions

    def check(self):
        self.left -= 1
        if self.left < 0:
            raise InterruptedRunError("stop")


def test_training_that_was_broken_off_ends_with_the_same_bits(log, tmp_path):
    pool, curve = fit_pool(log, TINY, 0)
    with pytest.raises(InterruptedRunError):
        fit_pool(log, TINY, 0, keeping=Keeping(Store(tmp_path), seconds=1e9, stop=_StopAfter(3)))
    again, same_curve = fit_pool(log, TINY, 0, keeping=Keeping(Store(tmp_path), seconds=0.0))
    assert eqx.tree_equal(pool, again)
    assert curve == same_curve


def test_a_window_needs_a_model_that_has_one():
    with pytest.raises(UsageError, match="model_window"):
        preset("cpu", "mopo").with_changes(model_window=2)
    preset("cpu", "mopo").with_changes(model="any-step", model_window=2)
