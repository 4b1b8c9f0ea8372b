"""Training a pool: it learns a known system and is judged honestly; the seed decides the rest."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from phyb.dynamics.fit import Keeping, PoolConfig, _start, _steps, fit_pool
from phyb.dynamics.rows import bootstrap_rows, prepare, split_rows
from phyb.errors import DivergenceError, InterruptedRunError
from phyb.interrupt import StopRequests
from phyb.storage.store import Store

CONFIG = PoolConfig(
    pool_size=3,
    model_hidden=(24,),
    model_learning_rate=1e-2,
    model_weight_decay=1e-4,
    model_batch_size=128,
    model_steps=900,
    model_check_every=100,
    model_patience=20,
    holdout_fraction=0.15,
    nll_beta=0.5,
    model_gradient_clip=10.0,
    log_std_bound_weight=0.01,
    members_at_once=3,
)
QUICK = dataclasses.replace(CONFIG, pool_size=2, model_hidden=(4,), model_steps=60, model_check_every=20)
SEED = 5


@pytest.fixture(scope="module")
def log(linear_log):
    return linear_log()


@pytest.fixture(scope="module")
def small_log(linear_log):
    return linear_log(episodes=12, steps=6)


@pytest.fixture(scope="module")
def pool(log):
    return fit_pool(log, CONFIG, SEED)[0]


@pytest.fixture(scope="module")
def quick_pool(small_log):
    return fit_pool(small_log, QUICK, SEED)[0]


def unseen_rows(seed=9, count=500):
    rng = np.random.default_rng(seed)
    states = np.concatenate([rng.normal(0.0, 0.5, (count, 2)), np.full((count, 1), 3.0)], axis=1)
    return states.astype(np.float32), rng.uniform(-1, 1, (count, 1)).astype(np.float32)


def holdout_loss(pool, log, config, seed, *, with_ends, outputs=(0, 1, 2, 3)):
    """Each member's loss on the hold-out rows, in plain numpy."""
    rows = split_rows(log, config.holdout_fraction, seed)[1]
    heads = pool.heads(jnp.arange(pool.size), log.observations[rows], log.actions[rows])
    change = np.concatenate([log.next_observations - log.observations, log.rewards[:, None]], axis=1)[rows]
    scale = np.asarray(pool.outputs.scale)
    targets = np.where(scale > 0, (change - pool.outputs.mean) / np.where(scale > 0, scale, 1.0), 0.0)
    error = (targets - heads.mean) / np.exp(heads.log_std)
    loss = np.mean(np.sum((0.5 * error**2 + heads.log_std)[..., list(outputs)], axis=-1), axis=-1)
    sign = np.where(log.terminated[rows], -1.0, 1.0)
    return loss + with_ends * np.mean(np.log1p(np.exp(sign * np.asarray(heads.done_logit))), axis=-1)


def test_the_pool_recovers_mean_and_noise_of_a_linear_system(pool, linear_system):
    observations, actions = unseen_rows()
    mean, std, reward = linear_system(observations, actions)
    told = pool.predict(jnp.arange(3), observations, actions)
    error = np.sqrt(np.mean((told.next_mean - mean) ** 2, axis=1))
    assert np.all(error[:, :2] < [0.02, 0.08])
    assert np.all(np.sqrt(np.mean((told.reward_mean - reward) ** 2, axis=1)) < 0.04)
    np.testing.assert_allclose(np.median(told.next_std[..., :2], axis=1), np.tile(std[:2], (3, 1)), rtol=0.15)
    np.testing.assert_allclose(np.median(told.reward_std, axis=1), 0.1, rtol=0.15)


def test_a_column_that_never_changes_is_predicted_exactly(pool):
    observations, actions = unseen_rows()
    told = pool.predict(jnp.arange(3), observations, actions)
    np.testing.assert_array_equal(told.next_mean[..., 2], 3.0)
    np.testing.assert_array_equal(told.next_std[..., 2], 0.0)
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves((pool, told)))


def test_the_termination_head_learns_its_threshold(pool):
    observations, actions = unseen_rows()
    margin = observations[:, 0] + actions[:, 0] - 1.2
    ends = np.asarray(pool.predict(jnp.arange(3), observations, actions).done_probability)
    clear = np.abs(margin) > 0.2
    assert np.mean((ends[:, clear] > 0.5) == (margin[clear] > 0)) > 0.98
    assert np.mean(ends[:, margin < -0.5]) < 0.02


def test_members_differ(pool):
    for leaf in jax.tree.leaves(eqx.filter(pool.members, eqx.is_array)):
        for one, other in ((0, 1), (0, 2), (1, 2)):
            assert not np.array_equal(leaf[one], leaf[other])
    told = pool.predict(jnp.arange(3), *unseen_rows())
    assert float(jnp.mean(jnp.std(told.next_mean[..., 1], axis=0))) > 1e-3


def test_the_reported_loss_is_that_of_the_returned_weights(pool, log):
    np.testing.assert_allclose(pool.holdout_nll, holdout_loss(pool, log, CONFIG, SEED, with_ends=1), rtol=1e-3)


def test_the_best_weights_are_kept_and_patience_ends_training(small_log):
    nothing = np.zeros(len(small_log), bool)
    endless = dataclasses.replace(small_log, terminated=nothing, truncated=small_log.episode_ends)
    config = dataclasses.replace(
        CONFIG, pool_size=1, model_steps=5000, model_check_every=25, model_patience=6, nll_beta=0.0
    )
    seen = []
    pool, curve = fit_pool(endless, config, SEED, progress=lambda *told: seen.append(told))
    best = [check.loss for check in curve]
    assert 7 < len(curve) < 200, "small logs are overfitted long before the last step"
    assert [check.steps for check in curve] == [25 * (place + 1) for place in range(len(curve))]
    assert (sorted(seen)[-1][0], {total for _, total, _ in seen}) == (curve[-1][0], {5000})
    assert np.all(np.diff(best) <= 0)
    assert best[-1] == best[-7] < best[-8], "six checks in vain, and no more"
    # Nothing ends in this log, so the termination head has no part in the loss.
    recomputed = holdout_loss(pool, endless, config, SEED, with_ends=0)
    np.testing.assert_allclose(pool.holdout_nll, recomputed, rtol=1e-3)
    assert float(pool.holdout_nll[0]) == pytest.approx(best[-1], rel=1e-6)
    moving = holdout_loss(pool, endless, config, SEED, with_ends=0, outputs=(0, 1, 3))  # 2 never changes
    assert curve[-1].moving_loss == pytest.approx(float(moving[0]), rel=1e-3)
    assert curve[-1].moving_loss - best[-1] > 0.5


def test_members_do_not_depend_on_the_group_they_are_trained_in(small_log, quick_pool):
    alone, _ = fit_pool(small_log, dataclasses.replace(QUICK, members_at_once=1), SEED)
    for one, other in zip(jax.tree.leaves(quick_pool), jax.tree.leaves(alone), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("rows", [1, 2, 7, 65_536, 100_003])
def test_places_of_a_bootstrap_sample_are_those_of_the_whole_sample(rows):
    key = jax.random.key(rows)
    places = jnp.asarray([0, rows - 1, rows // 2, 0])
    np.testing.assert_array_equal(bootstrap_rows(key, places, rows), jax.random.randint(key, (rows,), 0, rows)[places])


def last_bias(members):
    return members.trunk.biases[-1]


def test_each_member_learns_from_its_own_bootstrap_sample_alone(small_log):
    train = prepare(small_log, QUICK.holdout_fraction, SEED).train
    rows = len(train.done)
    keys = jax.random.split(jax.random.key(0), 2)
    state = _start(keys, (train.inputs.shape[1], train.targets.shape[1]), QUICK)
    samples = jax.vmap(lambda key: bootstrap_rows(key, jnp.arange(rows), rows))(state.bootstrap)
    one, other = (set(sample.tolist()) for sample in samples)
    assert one != other
    assert 0.45 * rows < len(one) < 0.8 * rows, "drawn with replacement, about 63 % of the rows are in a sample"

    def trained(train):
        return _steps(state, train, jnp.asarray(20), QUICK, 1.0)

    unseen = np.array(sorted(set(range(rows)) - one))
    after, altered = trained(train), trained(train._replace(targets=train.targets.at[unseen].add(100.0)))
    np.testing.assert_array_equal(jax.random.key_data(after.bootstrap), jax.random.key_data(state.bootstrap))
    for before, now in zip(jax.tree.leaves(after.model), jax.tree.leaves(altered.model), strict=True):
        np.testing.assert_array_equal(before[0], now[0])
    assert not np.allclose(*(last_bias(member.model)[1] for member in (after, altered)))


def test_the_seed_decides_everything(small_log, quick_pool):
    assert eqx.tree_equal(fit_pool(small_log, QUICK, SEED)[0], quick_pool)
    other, _ = fit_pool(small_log, QUICK, SEED + 1)
    assert not np.allclose(last_bias(other.members), last_bias(quick_pool.members), atol=0.1)


@pytest.mark.parametrize("broken", ["infinite", "not a number"])
def test_a_loss_that_is_not_finite_stops_training(small_log, broken):
    rate = 1e20 if broken == "infinite" else QUICK.model_learning_rate
    if broken == "not a number":
        small_log = dataclasses.replace(small_log, rewards=np.full(len(small_log), np.nan, np.float32))
    with pytest.raises(DivergenceError, match="20 steps"):
        fit_pool(small_log, dataclasses.replace(QUICK, model_learning_rate=rate), SEED)


class _StopAfter(StopRequests):
    """Asks to stop at the given number of questions, and at all after."""

    def __init__(self, questions):
        self.left = questions

    def check(self):
        self.left -= 1
        if self.left < 0:
            raise InterruptedRunError("stop")


@pytest.mark.parametrize("stop_after", [2, 9])
def test_a_pool_that_was_broken_off_is_gone_on_with_and_ends_with_the_same_bits(small_log, tmp_path, stop_after):
    config = dataclasses.replace(QUICK, members_at_once=2, pool_size=3, model_steps=30, model_check_every=10)
    pool, curve = fit_pool(small_log, config, SEED)
    store = Store(tmp_path)
    with pytest.raises(InterruptedRunError):
        fit_pool(small_log, config, SEED, keeping=Keeping(store, seconds=1e9, stop=_StopAfter(stop_after)))
    again, same_curve = fit_pool(small_log, config, SEED, keeping=Keeping(Store(tmp_path), seconds=0.0))
    assert eqx.tree_equal(pool, again)
    assert curve == same_curve
    work = []
    found, _ = fit_pool(
        small_log, config, SEED, keeping=Keeping(Store(tmp_path)), progress=lambda *told: work.append(told)
    )
    assert eqx.tree_equal(pool, found)
    assert not work, "finished members are not trained again"
    keeping = Keeping(Store(tmp_path))
    keeping.clear()
    assert [path.name for path in tmp_path.iterdir()] == ["manifest.json"]


def test_a_damaged_group_is_trained_again(small_log, tmp_path, quick_pool):
    fit_pool(small_log, QUICK, SEED, keeping=Keeping(Store(tmp_path)))
    (kept,) = (tmp_path / "pool").glob("*.safetensors")
    damaged = bytearray(kept.read_bytes())
    damaged[-20] ^= 4
    kept.write_bytes(damaged)
    assert eqx.tree_equal(fit_pool(small_log, QUICK, SEED, keeping=Keeping(Store(tmp_path)))[0], quick_pool)
