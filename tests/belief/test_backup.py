"""Backups through the belief: exact on linear members, fair to noise, and PMDB's where it should be."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phyb.belief.backup import BeliefConfig, aggregate, draw, follow, member_backups
from phyb.world.model import Imagined, WorldModel, imagine, successor_noise

OBS, ACT, ROWS, POOL = 2, 1, 40, 6
LOW, HIGH, SCALE, DISCOUNT = -2.0, 4.0, 2.5, 0.9
RULES = ("scaled_softmax", "softmax", "kth_min", "uniform", "single")
few = settings(max_examples=8, deadline=None)


def curved(s):
    """A value that bends, so that noise changes its mean."""
    return 0.5 * s[..., 0] ** 2 - s[..., 1]


def straight(s):
    return 2.0 * s[..., 0] - s[..., 1]


def world_of(pool, *, middle: Any = 0.0, width: Any = 1e6, floor=-1e3, termination: Any = "none"):
    vector = lambda value, size: jnp.broadcast_to(jnp.asarray(value, jnp.float32), (size,))  # noqa: E731
    return WorldModel(
        pool,
        vector(LOW, ACT),
        vector(HIGH, ACT),
        jnp.float32(SCALE),
        vector(middle, OBS),
        vector(width, OBS),
        jnp.float32(floor),
        termination,
    )


def members_of(seed, spread=1.0, log_std=-1.0):
    """Numbers of POOL linear members that differ by `spread`."""
    rng = np.random.default_rng(seed)
    shape = (OBS + ACT, OBS + 1)
    weights = 0.3 * rng.normal(size=shape) + 0.3 * spread * rng.normal(size=(POOL, *shape))
    biases = rng.normal(size=OBS + 1) + spread * rng.normal(size=(POOL, OBS + 1))
    return (
        weights.astype(np.float32),
        biases.astype(np.float32),
        np.full((POOL, OBS + 1), log_std, np.float32),
    )


def rows_of(seed):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(ROWS, OBS)).astype(np.float32), rng.uniform(-1, 1, (ROWS, ACT)).astype(np.float32)


def run(world, config, observations, actions, value=curved, key=None, members=None):
    key = jax.random.key(0) if key is None else key
    keys = jax.random.split(key, 3)
    members = draw(keys[0], config, world.pool) if members is None else members
    noise = successor_noise(keys[1], config, config.ensemble_size, len(observations), OBS)
    imagined = imagine(world, config, members, observations, actions, noise)
    backups = member_backups(imagined, value, DISCOUNT, world.value_floor)
    return members, noise, imagined, aggregate(keys[2], config, imagined, backups)


def naive_backups(numbers, members, noise, observations, actions, value, ends=lambda after: False):
    """Each member's mean backup, with plain loops over rows, members and samples."""
    weights, biases, log_std = (x.astype(np.float64) for x in numbers)
    noise = np.broadcast_to(noise, (len(members), *noise.shape[1:]))
    result = np.zeros((len(members), len(observations)))
    for row, (observation, action) in enumerate(zip(observations, actions, strict=True)):
        inputs = np.concatenate([observation, LOW + (action + 1) / 2 * (HIGH - LOW)])
        for slot, member in enumerate(members):
            out = inputs @ weights[member] + biases[member]
            total = 0.0
            for sample in noise[slot, :, row]:
                after = observation + out[:OBS] + np.exp(log_std[member, :OBS]) * sample
                total += out[OBS] / SCALE + DISCOUNT * (0.0 if ends(after) else value(after))
            result[slot, row] = total / noise.shape[1]
    return result


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("subset_size", [4, 2])
@given(seed=st.integers(0, 10**6), log_std=st.floats(-3, 1.5), samples=st.sampled_from([1, 2]))
@few
def test_equal_members_give_the_plain_expected_target_whatever_the_noise(
    linear_pool, rule, subset_size, seed, log_std, samples
):
    numbers = members_of(seed, spread=0.0, log_std=log_std)
    config = BeliefConfig(ensemble_size=4, subset_size=subset_size, weight_rule=rule, noise_samples=samples)
    rows = rows_of(seed)
    _, noise, _, belief = run(world_of(linear_pool(*numbers)), config, *rows, key=jax.random.key(seed))
    plain = naive_backups(numbers, [0], np.asarray(noise), *rows, curved)[0]
    np.testing.assert_allclose(belief.target, plain, rtol=1e-4, atol=1e-4)


def test_antithetic_noise_makes_that_target_exact_for_a_straight_value(linear_pool):
    numbers = members_of(1, spread=0.0, log_std=1.0)
    config = BeliefConfig(ensemble_size=4, subset_size=2, noise_samples=2)
    rows = rows_of(2)
    belief = run(world_of(linear_pool(*numbers)), config, *rows, value=straight)[-1]
    exact = naive_backups(numbers, [0], np.zeros((1, 1, ROWS, OBS)), *rows, straight)[0]
    np.testing.assert_allclose(belief.target, exact, rtol=1e-4, atol=1e-4)


def test_private_noise_mistakes_bad_luck_for_bad_models(linear_pool):
    numbers = members_of(3, spread=0.0, log_std=0.0)
    world, rows = world_of(linear_pool(*numbers)), rows_of(4)
    exact = naive_backups(numbers, [0], np.zeros((1, 1, ROWS, OBS)), *rows, straight)[0]

    def bias(noise, rule: Any = "scaled_softmax", subset_size=2):
        config = BeliefConfig(ensemble_size=4, subset_size=subset_size, weight_rule=rule, noise_samples=1, noise=noise)
        keys = jax.random.split(jax.random.key(0), repeats)
        targets = [run(world, config, *rows, value=straight, key=key)[-1].target for key in keys]
        return float(np.mean(targets - exact))

    repeats, luck = 10, DISCOUNT * np.sqrt(5.0)  # luck: the deviation of one member's single draw
    error = luck / np.sqrt(repeats * ROWS)
    assert abs(bias("shared")) < 4 * error
    assert bias("private") < -0.5 * luck
    assert bias("private", subset_size=4) < -0.2 * luck, "even keeping all, the weights lean to the unlucky"
    assert abs(bias("private", "uniform", 4)) < 4 * error / 2


@pytest.mark.parametrize("noise", ["shared", "private"])
@pytest.mark.parametrize("rank", [1, 2, 4])
@pytest.mark.parametrize("seed", [0, 1])
def test_kth_min_is_the_backup_of_pmdb(linear_pool, noise, rank, seed):
    numbers, rows = members_of(seed), rows_of(seed + 10)
    world = world_of(linear_pool(*numbers), termination=lambda s, a, after: after[..., 1] > 1.0)
    config = BeliefConfig(
        ensemble_size=4,
        subset_size=rank,
        weight_rule="kth_min",
        draw="distinct",
        noise=noise,
        noise_samples=2,
    )
    members, drawn_noise, _, belief = run(world, config, *rows, key=jax.random.key(seed))
    backups = naive_backups(
        numbers,
        np.asarray(members),
        np.asarray(drawn_noise),
        *rows,
        curved,
        ends=lambda after: after[1] > 1.0,
    )
    targets = [sorted(column)[rank - 1] for column in backups.T]
    np.testing.assert_allclose(belief.target, targets, rtol=1e-4, atol=1e-4)
    assert len(set(np.argmax(belief.weights, axis=0).tolist())) > 1, "the choice of the member must matter here"


def test_all_members_at_infinite_temperature_give_the_mean_of_the_drawn_members(linear_pool):
    numbers, rows = members_of(5), rows_of(6)
    config = BeliefConfig(ensemble_size=4, subset_size=4, belief_temperature=1e9, noise_samples=2)
    members, noise, _, belief = run(world_of(linear_pool(*numbers)), config, *rows)
    backups = naive_backups(numbers, np.asarray(members), np.asarray(noise), *rows, curved)
    np.testing.assert_allclose(belief.target, backups.mean(axis=0), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(belief.backups, backups, rtol=1e-4, atol=1e-4)


def test_leaving_the_data_never_pays(linear_pool):
    # One member drives straight out of the data, where the value network predicts nothing worse than 0.
    weights, biases, log_std = members_of(0, spread=0.0)
    biases[:, 0] += np.where(np.arange(POOL) == 0, 1e3, 0.0)
    floor = -8.0
    world = world_of(linear_pool(weights, biases, log_std), width=50.0, floor=floor)
    config = BeliefConfig(ensemble_size=4, subset_size=2, noise_samples=2)
    cost = lambda s: jnp.clip(-jnp.abs(s[..., 0]), floor, 0.0) * (jnp.abs(s[..., 0]) < 50)  # noqa: E731
    _, _, imagined, belief = run(world, config, *rows_of(1), value=cost, members=jnp.array([0, 1, 0, 2]))
    assert np.all(imagined.trust[jnp.array([0, 2])] == 0.0)
    assert np.all(imagined.trust[jnp.array([1, 3])] == 1.0)
    np.testing.assert_allclose(belief.backups[0], imagined.rewards[0] + DISCOUNT * floor, rtol=1e-5)
    assert np.all(belief.backups[jnp.array([0, 2])] <= belief.backups[jnp.array([1, 3])])


def test_after_the_end_nothing_is_earned():
    imagined = Imagined(
        successors=jnp.zeros((1, 2, 1, OBS)),
        rewards=jnp.array([[1.0]]),
        alive=jnp.array([[[0.0], [0.25]]]),
        trust=jnp.ones((1, 2, 1)),
    )
    backups = member_backups(imagined, lambda s: 10.0 + s[..., 0], 0.5, jnp.float32(-99))
    np.testing.assert_allclose(backups[0, :, 0], [1.0, 1.0 + 0.5 * 0.25 * 10.0])


def three_predictions(rows):
    """Three members, two samples, the same for every row; they end and are trusted differently."""
    shape = (3, 2, rows)
    place = jnp.arange(6.0).reshape(3, 2, 1, 1) * jnp.array([1.0, -10.0])
    return Imagined(
        successors=jnp.broadcast_to(place, (*shape, OBS)),
        rewards=jnp.broadcast_to(jnp.array([1.0, 2.0, 4.0])[:, None], (3, rows)),
        alive=jnp.broadcast_to(jnp.array([1.0, 0.5, 0.8]).reshape(3, 1, 1), shape),
        trust=jnp.broadcast_to(jnp.array([1.0, 1.0, 0.5]).reshape(3, 1, 1), shape),
    )


def test_the_rollout_follows_each_member_as_often_as_it_is_believed():
    rows, alpha = 20_000, np.array([0.2, 0.7, 0.1])
    imagined, config = three_predictions(rows), BeliefConfig(ensemble_size=3, subset_size=3)
    weights = jnp.broadcast_to(jnp.asarray(alpha, jnp.float32)[:, None], (3, rows))
    successor, reward, alive, chosen = (np.asarray(x) for x in follow(jax.random.key(0), config, imagined, weights))
    np.testing.assert_allclose(np.bincount(chosen, minlength=3) / rows, alpha, atol=0.015)
    np.testing.assert_array_equal(successor, np.asarray(imagined.successors)[chosen, 0, 0])
    np.testing.assert_array_equal(reward, np.array([1.0, 2.0, 4.0])[chosen])
    assert set(alive) == {0.0, 1.0}
    for member, stays in enumerate([1.0, 0.5, 0.4]):
        assert alive[chosen == member].mean() == pytest.approx(stays, abs=0.05)


def test_the_average_successor_is_the_weighted_mean():
    rows = 20_000
    imagined, config = three_predictions(rows), BeliefConfig(ensemble_size=3, subset_size=3, successor="average")
    weights = jnp.broadcast_to(jnp.array([0.2, 0.7, 0.1])[:, None], (3, rows))
    successor, reward, alive, _ = follow(jax.random.key(0), config, imagined, weights)
    np.testing.assert_allclose(successor, np.tile([1.8, -18.0], (rows, 1)), rtol=1e-5)
    np.testing.assert_allclose(reward, 0.2 + 1.4 + 0.4, rtol=1e-5)
    assert float(alive.mean()) == pytest.approx(0.2 + 0.7 * 0.5 + 0.1 * 0.4, abs=0.015)


def test_a_member_without_weight_is_never_followed():
    imagined = three_predictions(20_000)
    weights = jnp.broadcast_to(jnp.array([0.5, 0.0, 0.5])[:, None], (3, 20_000))
    chosen = follow(jax.random.key(1), BeliefConfig(), imagined, weights)[3]
    assert set(np.asarray(chosen).tolist()) == {0, 2}


BACKUPS = jnp.array([[5.0, 1.0], [0.0, 8.0], [3.0, 9.0]])[..., None]  # means 3, 4 and 6


def belief_of(seed=0, rewards=(0.0, 0.0, 0.0), **options):
    imagined = three_predictions(1)._replace(rewards=jnp.asarray(rewards)[:, None])
    config = BeliefConfig(ensemble_size=3, **options)
    return aggregate(jax.random.key(seed), config, imagined, BACKUPS)


def test_the_target_may_use_only_the_first_sample_of_members_ranked_by_all():
    belief = belief_of(subset_size=1, weight_rule="kth_min", target_samples="first")
    np.testing.assert_allclose(belief.target, [5.0])
    np.testing.assert_allclose(belief_of(subset_size=1, weight_rule="kth_min").target, [3.0])


def test_members_may_be_ranked_by_the_value_of_the_successor_alone():
    # Without their rewards the backups are 3, 4 - 3 = 1 and 6 - 6 = 0.
    belief = belief_of(subset_size=1, weight_rule="kth_min", rank_by="value", rewards=(0.0, 3.0, 6.0))
    np.testing.assert_array_equal(belief.weights[:, 0], [0, 0, 1])
    np.testing.assert_allclose(belief.target, [6.0])


def test_other_backups_may_rank_than_those_that_make_the_target():
    reverse = -BACKUPS
    config = BeliefConfig(ensemble_size=3, subset_size=1, weight_rule="kth_min")
    belief = aggregate(jax.random.key(0), config, three_predictions(1), BACKUPS, reverse)
    np.testing.assert_array_equal(belief.weights[:, 0], [0, 0, 1])
    np.testing.assert_allclose(belief.target, [6.0])


def test_uniform_mix_leaves_every_drawn_member_some_weight():
    belief = belief_of(subset_size=1, uniform_mix=0.01)
    np.testing.assert_allclose(belief.weights[:, 0], [0.99 + 0.01 / 3, 0.01 / 3, 0.01 / 3], rtol=1e-5)
    np.testing.assert_allclose(belief.target, 0.99 * 3.0 + 0.01 * 13 / 3, rtol=1e-5)


def test_kth_min_probability_is_a_coin_for_the_whole_update():
    np.testing.assert_array_equal(
        belief_of(subset_size=1, kth_min_probability=1.0, kth_min_rank=2).weights[:, 0], [0, 1, 0]
    )
    flip = jax.vmap(
        lambda key: (
            aggregate(
                key,
                BeliefConfig(ensemble_size=3, subset_size=1, kth_min_probability=0.3, kth_min_rank=3),
                three_predictions(4)._replace(rewards=jnp.zeros((3, 4))),
                jnp.broadcast_to(BACKUPS, (3, 2, 4)),
            ).weights
        )
    )
    weights = np.asarray(flip(jax.random.split(jax.random.key(0), 4000)))
    assert np.all(weights == weights[..., :1])
    np.testing.assert_allclose(weights[..., 0].mean(axis=0), [0.7, 0.0, 0.3], atol=0.03)


def test_the_prior_may_favour_members_by_their_likelihood(linear_pool):
    pool = linear_pool(*members_of(0), holdout_nll=[3.0, 1.0, 1.0 + np.log(2) / 50, 3.0, 3.0, 3.0])
    config = BeliefConfig(ensemble_size=5000, subset_size=1, prior="likelihood", prior_strength=50.0)
    drawn = np.bincount(np.asarray(draw(jax.random.key(0), config, pool)), minlength=POOL) / 5000
    np.testing.assert_allclose(drawn, [0, 2 / 3, 1 / 3, 0, 0, 0], atol=0.03)
    plain = BeliefConfig(ensemble_size=5000, subset_size=1, prior="uniform")
    drawn = np.bincount(np.asarray(draw(jax.random.key(0), plain, pool)), minlength=POOL) / 5000
    np.testing.assert_allclose(drawn, 1 / POOL, atol=0.03)


@pytest.mark.parametrize(
    "settings",
    [
        {"subset_size": 0},
        {"ensemble_size": 3, "subset_size": 4},
        {"ensemble_size": 1, "subset_size": 1, "kth_min_probability": 0.1, "kth_min_rank": 2},
        {"wall_start": 2.0, "wall_end": 2.0},
    ],
)
def test_impossible_settings_are_refused(settings):
    with pytest.raises(ValueError, match=r"must"):
        BeliefConfig(**settings)


@pytest.mark.parametrize("samples", [1, 4])
def test_a_known_reward_takes_the_place_of_the_learned_one_in_the_units_of_the_log(linear_pool, samples):
    pool = linear_pool(*members_of(3))
    observations, actions = rows_of(3)
    known = lambda s, a, t: s[..., 0] + 10.0 * a[..., 0] + 100.0 * t[..., 1]  # noqa: E731
    config = BeliefConfig(ensemble_size=4, subset_size=2, noise_samples=samples)
    learned, world = world_of(pool), dataclasses.replace(world_of(pool), reward=known)
    (_, _, plain, _), (_, _, found, _) = (run(each, config, observations, actions) for each in (learned, world))
    env_actions = LOW + 0.5 * (actions + 1.0) * (HIGH - LOW)
    successors = np.asarray(found.successors, np.float64)
    expected = observations[:, 0] + 10.0 * env_actions[:, 0] + 100.0 * successors[..., 1].mean(axis=1)
    np.testing.assert_allclose(found.rewards, expected / SCALE, rtol=1e-4, atol=1e-3)
    np.testing.assert_array_equal(found.successors, plain.successors)
    assert found.rewards.shape == plain.rewards.shape
    assert not np.allclose(found.rewards, plain.rewards)
