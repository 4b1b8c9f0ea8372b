"""The pool's judge on worlds whose truth is known: a linear system, and pools that are it, or almost it."""

import dataclasses
import json

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from phyb.data.log import Log
from phyb.dynamics.model import GaussianModel
from phyb.dynamics.pool import Pool
from phyb.errors import UsageError
from phyb.networks import Standardizer
from phyb.world.calibration import calibration_bins, coverage, rank_correlation, rmse, share_explained
from phyb.world.diagnose import diagnose

# Columns of the state: two that move, one that never changes. Inputs: three states, one action.
CHANGE = np.array([[-0.1, 0.0, 0.0, 0.5], [0.2, -0.3, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0], [1.0, 0.0, 0.0, -1.0]])
NOISE = np.array([0.2, 0.1, 0.0, 0.3])
EPISODE = 25


def linear_log(episodes=240, seed=0, end_above=None):
    rng = np.random.default_rng(seed)
    state = np.concatenate([rng.normal(size=(episodes, 2)), np.full((episodes, 1), 7.0)], axis=1)
    states, actions, outcomes = [], [], []
    for _ in range(EPISODE):
        action = rng.uniform(-1, 1, (episodes, 1))
        out = np.concatenate([state, action], axis=1) @ CHANGE.T + NOISE * rng.standard_normal((episodes, 4))
        states.append(state)
        actions.append(action)
        outcomes.append(np.concatenate([state + out[:, :3], out[:, 3:]], axis=1))
        state = outcomes[-1][:, :3]
    observations, actions, outcomes = (
        np.stack(x, axis=1).reshape(episodes * EPISODE, -1) for x in (states, actions, outcomes)
    )
    last = np.arange(len(actions)) % EPISODE == EPISODE - 1
    terminated = np.zeros_like(last) if end_above is None else (outcomes[:, 0] > end_above) & last
    return Log(
        observations.astype(np.float32), actions.astype(np.float32), outcomes[:, 3].astype(np.float32),
        outcomes[:, :3].astype(np.float32), terminated, last & ~terminated,
        np.array([-1.0], np.float32), np.array([1.0], np.float32),
    )  # fmt: skip


def linear_pool(members=4, std=NOISE, error=0.0, end_bias=-20.0, seed=0):
    """Members are the true system plus weights off by `error`; `std` is the noise they claim."""
    rng = np.random.default_rng(seed)
    blank = GaussianModel(jax.random.key(0), 4, 4, ())

    def member(number):
        weight, bias = np.zeros((4, 9)), np.zeros(9)
        weight[:, :4] = CHANGE.T + error * rng.standard_normal((4, 4))
        weight[:, 2] = weight[2] = 0.0  # the constant column neither changes nor matters
        bias[4:8], bias[8] = np.log(np.maximum(std, 1e-6)), end_bias
        parts = (weight, bias, np.full(4, -30.0), np.full(4, 30.0))
        where = lambda m: (m.trunk.weights[0], m.trunk.biases[0], m.min_log_std, m.max_log_std)  # noqa: E731
        return eqx.tree_at(where, blank, tuple(jnp.asarray(part, jnp.float32) for part in parts))

    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(member(n) for n in range(members)))
    scale = jnp.array([1.0, 1.0, 0.0, 1.0])
    return Pool(
        stacked,
        Standardizer(jnp.zeros(4), jnp.ones(4)),
        Standardizer(jnp.zeros(4), scale),
        jnp.zeros(members),
    )


@pytest.fixture(scope="module")
def log():
    return linear_log()


HOLDOUT = np.arange(120 * EPISODE, 240 * EPISODE)


@pytest.fixture(scope="module")
def truth(log):
    return diagnose(linear_pool(), log, HOLDOUT)


def strict(found):
    return json.loads(json.dumps(found, allow_nan=False))


def test_the_true_model_is_calibrated(truth):
    for dimension, noise in zip(truth["dimensions"], NOISE, strict=True):
        if noise == 0:
            continue
        assert dimension["pool_rmse"] == pytest.approx(noise, rel=0.05)
        assert dimension["member_rmse"] == pytest.approx(dimension["pool_rmse"])
        assert dimension["coverage_50"] == pytest.approx(0.5, abs=0.03)
        assert dimension["coverage_90"] == pytest.approx(0.9, abs=0.02)
        assert dimension["standardised_squared_error"] == pytest.approx(1.0, abs=0.08)
        assert len(dimension["bins"]) == 10
        for group in dimension["bins"]:
            assert group["predicted_std"] == pytest.approx(noise, rel=1e-3)
            assert group["observed_rmse"] == pytest.approx(noise, rel=0.25)
    assert truth["better_than_trivial"]
    assert truth["share_explained"] > 0.5
    assert (truth["rows"], truth["episodes"], truth["members"]) == (3000, 120, 4)


def test_a_constant_column_is_exact_and_gives_no_nan(truth):
    constant = strict(truth)["dimensions"][2]
    assert constant["exact"]
    assert constant["pool_rmse"] == constant["trivial_rmse"] == 0.0
    assert constant["bins"] == []
    for key in ("share_explained", "coverage_50", "standardised_squared_error", "spread_error_correlation"):
        assert constant[key] is None
    assert strict(truth)["rollouts"]["dimensions"][2]["sampled"] == [0.0] * 5


def test_a_column_that_is_only_constant_in_the_training_rows_counts_as_over_confident(log):
    moved = log.next_observations.copy()
    moved[HOLDOUT, 2] += 0.5
    found = diagnose(linear_pool(), dataclasses.replace(log, next_observations=moved), HOLDOUT)
    dimension = strict(found)["dimensions"][2]
    assert not dimension["exact"]
    assert dimension["coverage_90"] == 0.0
    assert dimension["standardised_squared_error"] > 1e6


@pytest.mark.parametrize(("factor", "square"), [(0.25, 16.0), (4.0, 1 / 16)])
def test_wrong_confidence_is_detected(log, factor, square):
    found = diagnose(linear_pool(std=factor * NOISE), log, HOLDOUT)["dimensions"][0]
    assert found["standardised_squared_error"] == pytest.approx(square, rel=0.1)
    covered = 2 * scipy.stats.norm.cdf(factor * scipy.stats.norm.ppf(0.95)) - 1
    assert found["coverage_90"] == pytest.approx(covered, abs=0.02)


def test_disagreement_warns_of_error_and_the_mean_of_members_beats_one_of_them(log):
    found = strict(diagnose(linear_pool(std=0.01 * NOISE + 1e-4, error=0.5), log, HOLDOUT))
    first = found["dimensions"][0]
    assert first["pool_rmse"] < 0.7 * first["member_rmse"]
    assert first["spread_error_correlation"] > 0.1
    assert found["spread_error_correlation"] > 0.3
    predicted = [group["predicted_std"] for group in first["bins"]]
    assert predicted == sorted(predicted)


def test_a_pool_worse_than_trivial_is_called_so(log):
    found = diagnose(linear_pool(error=5.0), log, HOLDOUT)
    assert not found["better_than_trivial"]
    assert found["share_explained"] == -1.0
    assert "no better than a guess" in found["verdict"][0]


def test_where_nothing_moves_there_is_nothing_to_hold_against_the_pool(log):
    still = {"next_observations": log.observations, "rewards": np.full_like(log.rewards, 0.1)}
    columns = {name: getattr(log, name)[HOLDOUT] for name in ("observations", "actions", "terminated", "truncated")}
    quiet = dataclasses.replace(log, **columns, **{name: column[HOLDOUT] for name, column in still.items()})
    pool = linear_pool()
    pool = dataclasses.replace(pool, outputs=Standardizer(jnp.array([0, 0, 0, 0.1]), jnp.zeros(4)))
    found = strict(diagnose(pool, quiet, np.arange(len(quiet) // 2)))
    assert found["share_explained"] is None
    assert found["better_than_trivial"]
    assert "nothing to learn" in found["verdict"][0]


def test_rows_the_members_disagree_about_have_larger_errors(log):
    found = strict(diagnose(linear_pool(std=0.01 * NOISE + 1e-4, error=0.5), log, HOLDOUT))
    doubt, error = ([group[key] for group in found["doubt_bins"]] for key in ("predicted_std", "observed_rmse"))
    assert sum(group["rows"] for group in found["doubt_bins"]) == found["rows"]
    assert doubt == sorted(doubt)
    assert error[-1] > 1.5 * error[0]
    # All rows together: the root mean square over moving numbers of error / trivial error.
    ratios = [each["pool_rmse"] / each["trivial_rmse"] for each in found["dimensions"] if each["trivial_rmse"]]
    assert np.sqrt(np.mean(np.square(error))) == pytest.approx(np.sqrt(np.mean(np.square(ratios))), rel=1e-6)


def test_rollouts_of_the_true_model_grow_to_the_known_spread(log, truth):
    rollouts = truth["rollouts"]
    assert rollouts["lengths"] == [1, 2, 5, 10, 20]
    assert rollouts["rollouts"] == 512
    transition = np.eye(2) + CHANGE[:2, :2]
    variance, expected = np.zeros((2, 2)), []
    for step in range(1, 21):
        variance = transition @ variance @ transition.T + np.diag(NOISE[:2] ** 2)
        if step in rollouts["lengths"]:
            expected.append(np.sqrt(np.diag(variance)))
    for column in range(2):
        curve = rollouts["dimensions"][column]
        assert curve["mean"] == pytest.approx([std[column] for std in expected], rel=0.12)
        # A sampled path differs from the real one by two independent noises.
        assert curve["sampled"] == pytest.approx([np.sqrt(2) * std[column] for std in expected], rel=0.12)
        assert curve["trivial"][-1] > curve["mean"][-1]
    scale = log.observations.std(axis=0)[:2]
    last = [rollouts["dimensions"][column]["mean"][-1] for column in range(2)]
    assert rollouts["overall"]["mean"][-1] == pytest.approx(np.sqrt(np.mean((last / scale) ** 2)), rel=1e-4)


def test_rollouts_that_explode_stay_strict_json(log):
    found = strict(diagnose(linear_pool(error=500.0), log, HOLDOUT))
    assert found["rollouts"]["dimensions"][0]["sampled"][-1] is None
    assert found["rollouts"]["dimensions"][0]["trivial"][-1] > 0


def test_lengths_beyond_the_episodes_are_left_out_and_windows_stay_inside_episodes(log):
    short = diagnose(linear_pool(), log, HOLDOUT, lengths=(3, 20, 26, 1000))
    assert short["rollouts"]["lengths"] == [3, 20]


def test_a_single_holdout_row_is_enough(log):
    one_row = strict(diagnose(linear_pool(), log, np.array([7])))
    assert one_row["rollouts"]["lengths"] == [1]
    assert one_row["dimensions"][0]["bins"][0]["rows"] == 1


def test_ends_by_rule_are_judged_on_imagined_successors():
    log = linear_log(end_above=0.2)
    holdout = np.arange(EPISODE - 1, len(log), EPISODE)
    rule = lambda observations, actions, successors: successors[..., 0] > 0.2  # noqa: E731
    ends = strict(diagnose(linear_pool(std=1e-6 + 0 * NOISE), log, holdout, termination=rule))["termination"]
    assert ends["kind"] == "rule"
    assert ends["precision"] > 0.7
    assert ends["recall"] > 0.7
    assert ends["worst_member_false_end_rate"] >= ends["false_end_rate"]
    assert ends["observed_rate"] == pytest.approx(ends["predicted_rate"], abs=0.1)


def test_learned_ends_without_any_end_in_the_log_have_no_recall(log):
    ends = strict(diagnose(linear_pool(), log, HOLDOUT, termination="learned"))["termination"]
    assert ends["kind"] == "learned"
    assert ends["recall"] is None
    assert ends["precision"] is None
    assert ends["false_end_rate"] == pytest.approx(0.0, abs=1e-6)
    assert diagnose(linear_pool(), log, HOLDOUT, termination="none")["termination"] is None


def test_the_same_seed_gives_the_same_numbers(log, truth):
    assert diagnose(linear_pool(), log, HOLDOUT) == truth
    assert diagnose(linear_pool(), log, HOLDOUT, seed=1)["rollouts"] != truth["rollouts"]


def test_an_empty_holdout_is_refused(log):
    with pytest.raises(UsageError, match="hold-out"):
        diagnose(linear_pool(), log, np.array([], int))


def test_statistics_agree_with_their_definitions():
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 6, 300).astype(float), rng.normal(size=300)
    assert rank_correlation(a, b + a) == pytest.approx(scipy.stats.spearmanr(a, b + a)[0])
    assert rank_correlation(a, np.ones(300)) is None
    assert rmse(np.array([3.0, 4.0])) == pytest.approx(12.5**0.5)
    assert rmse(np.array([])) is None
    assert rmse(np.array([1e200])) is None
    assert share_explained(1.0, 2.0) == 0.75
    assert share_explained(1.0, 0.0) is None
    assert coverage(np.array([0.01, 0.3, 0.5, 0.94]), 0.9) == 0.75
    assert [group["rows"] for group in calibration_bins(b, a)] == [30] * 10
