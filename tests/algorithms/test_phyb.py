"""One PhyB update: pure, exact where it can be, and learning from the right states."""

import dataclasses
import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from two_sides import BELIEF, CONFIG, DISCOUNT, ROWS, world_of_two_sides

from phyb.algorithms.phyb import PhyB
from phyb.algorithms.problem import cache_predictions, make_problem, prediction_bytes
from phyb.belief.backup import backup
from phyb.data.log import Log
from phyb.errors import UsageError
from phyb.networks import move_towards
from phyb.policy.actor import Actor, squash


@pytest.fixture(scope="module")
def problem(linear_pool):
    return world_of_two_sides(linear_pool, doubt=0.1, ends=0.2)


@pytest.fixture(scope="module")
def algorithm():
    return PhyB(CONFIG, steps=1000)


@pytest.fixture(scope="module")
def update(algorithm):
    return jax.jit(algorithm.update)


@pytest.fixture(scope="module")
def start(algorithm, problem):
    return algorithm.init(jax.random.key(0), problem)


@pytest.fixture(scope="module")
def later(start, update, problem):
    """The states and metrics of the first four updates; the first two only evaluate."""
    states, metrics = [start], []
    for _ in range(4):
        state, told = update(states[-1], problem)
        states.append(state)
        metrics.append(jax.device_get(told))
    return states, metrics


def differs(one, other):
    return any(not np.array_equal(a, b) for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True))


def test_an_update_is_a_function_of_its_arguments(start, update, problem, later):
    again, metrics = update(start, problem)
    assert eqx.tree_equal(again, later[0][1])
    assert eqx.tree_equal(jax.device_get(metrics), later[1][0])
    other, _ = update(start._replace(key=jax.random.key(99)), problem)
    assert differs(other.critics, again.critics)
    assert differs(other.rollouts, again.rollouts)


def test_an_update_changes_everything_that_learns_and_slow_copies_follow(later):
    before, after = later[0][2:4]
    for name in ("actor", "critics", "value", "target_critics", "target_value", "rollouts"):
        assert differs(getattr(before, name), getattr(after, name)), name
    assert int(after.step) == int(before.step) + 1
    assert differs(jax.random.key_data(before.key), jax.random.key_data(after.key))
    for slow, fast, rate in (
        ((before.target_critics, after.target_critics), after.critics, 0.1),
        ((before.target_value, after.target_value), after.value, 0.1),
        ((before.reference.average, after.reference.average), after.actor, 0.05),
    ):
        expected = move_towards(slow[0], fast, rate)
        for a, b in zip(jax.tree.leaves(expected), jax.tree.leaves(slow[1]), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_metrics_are_finite_and_tell_of_the_belief(later):
    for told in later[1]:
        assert all(np.all(np.isfinite(value)) for value in told.values())
        np.testing.assert_allclose(told["weight_by_rank"].sum(), 1.0, rtol=1e-5)
        assert np.all(np.diff(told["weight_by_rank"]) <= 0)
        assert told["weight_by_rank"][2] == told["chosen_by_rank"][2] == 0.0
        np.testing.assert_allclose(told["chosen_by_rank"].sum(), 1.0, rtol=1e-5)
        assert told["pessimism"] >= 0
        assert told["imagined_end"] == 0


def improvement(algorithm, problem):
    """From a state to the mirror step of one update, the candidates it chose from, and where."""

    @jax.jit
    def run(state):
        real = problem.sample(jax.random.key(0), CONFIG.real_batch_size)
        observations = problem.standardizer(jnp.concatenate([real.observations, state.rollouts]))
        candidates = algorithm.improvement.candidates(jax.random.key(1), state, observations, real)
        return algorithm.improvement.improve(state, observations, candidates)[0], candidates, observations

    return run


def test_the_evaluation_phase_keeps_the_weights_at_the_reference(algorithm, problem, later):
    states, metrics = later
    assert [bool(told["divergence"] > 1e-3) for told in metrics] == [False, False, True, True]
    improve = improvement(algorithm, problem)
    step, candidates, observations = improve(states[1])
    q = states[1].critics.of_candidates(observations, squash(candidates.draws))
    np.testing.assert_array_equal(step.weights, candidates.reference)
    np.testing.assert_allclose(step.value, jnp.sum(candidates.reference * q, axis=-1), atol=1e-5)
    step, candidates, _ = improve(states[2])
    assert float(jnp.abs(step.weights - candidates.reference).max()) > 0.1


@pytest.mark.parametrize("vote", ["least", "mean"])
def test_the_vote_of_the_critics_decides_the_q_values_of_candidates(problem, later, vote):
    state = later[0][1]
    algorithm = PhyB(dataclasses.replace(CONFIG, critic_vote=vote), steps=10)
    step, candidates, observations = improvement(algorithm, problem)(state)
    q = state.critics.of_candidates(observations, squash(candidates.draws), vote)
    np.testing.assert_allclose(step.value, jnp.sum(candidates.reference * q, axis=-1), atol=1e-5)


def test_the_clone_may_learn_from_the_best_episodes_alone():
    """Two agents act at the same states: one does 0.5 and is paid, the other does -0.5 and is not."""
    rng, bound, count = np.random.default_rng(0), np.ones(1, np.float32), 400
    states = rng.uniform(-1, 1, (count, 1)).astype(np.float32)
    good = np.arange(count) % 20 < 10  # episodes of ten rows each
    actions = np.where(good, 0.5, -0.5)[:, None].astype(np.float32)
    ends = np.arange(count) % 10 == 9
    log = Log(states, actions, good.astype(np.float32), states, np.zeros(count, bool), ends, -bound, bound)
    problem = make_problem(log, None, discount=DISCOUNT, horizon=10)
    chosen = {}
    for share in (0.5, 1.0):
        algorithm = PhyB(dataclasses.replace(CONFIG, clone_best=share, clone_steps=3000), steps=10)
        state = algorithm.init(jax.random.key(0), problem)
        chosen[share] = algorithm.policy(state, problem).act(states[:50])
    np.testing.assert_allclose(chosen[0.5], 0.5, atol=0.1)
    assert abs(float(np.mean(chosen[1.0]))) < 0.2


def test_the_evaluation_phase_leaves_the_policy_alone(later):
    states, _ = later
    for state in states[1:3]:
        for new, old in zip(jax.tree.leaves(state.actor), jax.tree.leaves(states[0].actor), strict=True):
            np.testing.assert_array_equal(new, old)
    assert differs(states[2].actor, states[3].actor)


def test_less_bold_steps_go_less_far(problem, later):
    state = later[0][-1]
    improve = improvement(PhyB(CONFIG, steps=1000), problem)
    bold, shy = (
        improve(state._replace(incumbent=state.incumbent._replace(trust_region_scale=jnp.asarray(share))))[0]
        for share in (1.0, 0.25)
    )
    assert float(shy.divergence.mean()) < 0.5 * float(bold.divergence.mean())


def test_what_the_pool_says_about_the_log_is_asked_once(problem):
    pool, known = problem.world.pool, cache_predictions(problem, block=64)  # the last block is shorter
    chosen = jnp.asarray([ROWS - 1, 0, 70, 70])
    rows = problem.take(chosen)
    asked = pool.predict(jnp.arange(pool.size), rows.observations, problem.world.env_action(rows.actions))
    told = known.predictions_on(chosen)
    assert problem.predictions_on(chosen) is None
    assert told is not None
    for kept, fresh in zip(told, asked, strict=True):
        np.testing.assert_allclose(kept, fresh, rtol=1e-5, atol=1e-6)
    assert sum(leaf.nbytes for leaf in jax.tree.leaves(known.cached_predictions)) == prediction_bytes(problem)


def test_targets_from_remembered_predictions_are_those_of_the_models(start, problem):
    algorithm = PhyB(dataclasses.replace(CONFIG, real_target="belief"), steps=10)
    assert algorithm.asks_about_log
    target = jax.jit(algorithm._logged_target)
    chosen = jnp.arange(40)
    rows, told = problem.take(chosen), cache_predictions(problem).predictions_on(chosen)
    assert told is not None
    asked = target(jax.random.key(1), start, problem, rows)
    np.testing.assert_allclose(target(jax.random.key(1), start, problem, rows, told), asked, rtol=1e-4, atol=1e-5)
    shifted = told._replace(reward_mean=told.reward_mean + problem.reward_scale)  # proof that they are used
    np.testing.assert_allclose(
        target(jax.random.key(1), start, problem, rows, shifted), asked + 1.0, rtol=1e-4, atol=1e-4
    )


def test_terminal_rows_do_not_bootstrap_and_truncated_rows_do(algorithm, start, problem):
    raised = eqx.tree_at(lambda v: v.network.biases[-1], start.target_value, jnp.full(1, 7.0, jnp.float32))
    target = algorithm._logged_target(jax.random.key(0), start._replace(target_value=raised), problem, problem.rows)
    rows = jax.device_get(problem.rows)
    bootstrap = DISCOUNT * np.asarray(raised(problem.standardizer(rows.next_observations)))
    assert rows.terminated.any()
    np.testing.assert_allclose(
        target, rows.rewards + np.where(rows.terminated > 0, 0.0, bootstrap), rtol=1e-5, atol=1e-5
    )


def test_targets_stay_within_what_the_rewards_allow(start, update, problem):
    raised = eqx.tree_at(lambda v: v.network.biases[-1], start.target_value, jnp.full(1, 1e6, jnp.float32))
    told = update(start._replace(target_value=raised), problem)[1]
    limit = float(problem.value_high * problem.reward_scale)
    assert float(told["q_logged"]) <= limit * (1 + 1e-5)
    assert float(told["q_imagined"]) <= limit * (1 + 1e-5)


def test_rollouts_age_and_start_anew_from_the_log(later, problem):
    states, _ = later
    logged = {row.tobytes() for row in np.asarray(problem.rows.observations)}
    for before, after in itertools.pairwise(states):
        fresh = np.asarray(after.rollout_age) == 0
        for row, is_fresh in zip(np.asarray(after.rollouts), fresh, strict=True):
            assert (row.tobytes() in logged) == is_fresh
        np.testing.assert_array_equal(after.rollout_age[~fresh], before.rollout_age[~fresh] + 1)
        assert int(after.rollout_age.max()) < CONFIG.rollout_length
    assert any(np.any(np.asarray(state.rollout_age) == 2) for state in states)


def test_the_deployed_policy_is_the_mean_of_the_reference(algorithm, problem, later):
    state, policy = later[0][-1], algorithm.policy(later[0][-1], problem)
    observations = problem.rows.observations[:20]
    mean = state.reference.average(problem.standardizer(observations)).mean
    np.testing.assert_allclose(policy.act(observations), np.tanh(mean), rtol=1e-5, atol=1e-6)
    assert not np.allclose(policy.act(observations), np.tanh(state.actor(problem.standardizer(observations)).mean))


def test_the_options_of_the_paper_and_of_the_released_code_run(problem):
    belief = dataclasses.replace(
        BELIEF,
        weight_rule="softmax",
        uniform_mix=0.01,
        kth_min_probability=0.1,
        rank_by="value",
        draw="distinct",
        prior="likelihood",
        noise="private",
        target_samples="first",
        successor="average",
    )
    config = dataclasses.replace(
        CONFIG,
        belief=belief,
        value_estimator="direct",
        potential_mix=1.0,
        target_divergence=0.2,
        step_size_scope="state",
        improve_with="target",
        real_target="belief",
        evaluation_steps=0,
        clone_steps=0,
    )
    algorithm = PhyB(config, steps=10)
    before = algorithm.init(jax.random.key(0), problem)
    after, told = jax.jit(algorithm.update)(before, problem)
    assert all(np.all(np.isfinite(value)) for value in told.values())
    assert differs(before.actor, after.actor)
    assert float(told["divergence"]) == pytest.approx(0.2, rel=0.02)
    assert float(told["weight_by_rank"].sum()) == pytest.approx(1.0, rel=1e-5)


def test_the_divergence_falls_over_the_run_to_its_final_share(start, problem):
    config = dataclasses.replace(CONFIG, step_size_scope="state", final_divergence=0.1, evaluation_steps=2)
    algorithm = PhyB(config, steps=12)
    update = jax.jit(algorithm.update)
    for step, share in ((2, 1.0), (7, 0.55), (12, 0.1)):
        told = update(start._replace(step=jnp.asarray(step, jnp.int32)), problem)[1]
        assert float(told["divergence"]) == pytest.approx(0.5 * share, rel=0.05)


@pytest.fixture(scope="module")
def judged(problem):
    """An algorithm of many candidates and a fixed beta, and a state whose actor is not its reference."""
    config = dataclasses.replace(
        CONFIG,
        potential_mix=1.0,
        step_size_rule="fixed",
        step_size=0.2,
        value_estimator="direct",
        actor_candidates=3000,
        reference_candidates=3000,
        logged_candidates=0,
        evaluation_steps=0,
        clone_steps=0,
    )
    algorithm = PhyB(config, steps=10)
    state = algorithm.init(jax.random.key(5), problem)
    return algorithm, state._replace(actor=Actor(jax.random.key(6), 1, 1, (8,)))


def integrated_value(state, observations):
    """beta log E_mu exp(q / beta) over the one action, by the trapezoidal rule; any batch of standardised rows."""
    mu = state.reference.average(observations)
    mean, std = mu.mean[..., 0], jnp.exp(mu.log_std[..., 0])
    noise = jnp.linspace(-7.0, 7.0, 1401)
    draws = mean[..., None, None] + std[..., None, None] * noise[:, None]
    rows = jnp.broadcast_to(observations[..., None, :], (*draws.shape[:-1], observations.shape[-1]))
    q = jnp.min(state.critics(rows, squash(draws)), axis=0)
    beta = state.step_size
    return beta * jax.nn.logsumexp(q / beta - 0.5 * noise**2 + jnp.log(0.01 / jnp.sqrt(2 * jnp.pi)), axis=-1)


def test_the_direct_value_approximates_the_integral_over_actions(judged, problem):
    algorithm, state = judged
    observations = problem.standardizer(problem.rows.observations[:24])
    direct = jax.jit(algorithm.improvement.direct_value)(jax.random.key(0), state, state.critics, observations)
    exact = np.asarray(integrated_value(state, observations))
    assert exact.std() > 0.05
    np.testing.assert_allclose(direct, exact, atol=0.03)


def test_the_amortised_network_is_taught_that_same_value(judged, problem):
    algorithm, state = judged
    step, _, observations = improvement(algorithm, problem)(state)
    np.testing.assert_allclose(step.value, integrated_value(state, observations), atol=0.03)


def test_direct_and_perfectly_amortised_values_give_the_same_targets(judged, problem):
    algorithm, state = judged
    rows = problem.rows.observations[:10], problem.rows.actions[:10]
    key = jax.random.key(7)
    _, direct = jax.jit(algorithm._backup)(key, state, problem, *rows)
    perfect = lambda observations: integrated_value(state, observations)  # noqa: E731
    world, value = problem.learned_world(), problem.bounded(perfect)
    _, amortised = backup(jax.random.split(key)[0], BELIEF, world, value, problem.discount, *rows)
    np.testing.assert_allclose(direct.backups, amortised.backups, atol=0.03)
    np.testing.assert_allclose(direct.target, amortised.target, atol=0.03)


@pytest.fixture(scope="module")
def trained(algorithm, update, start, linear_pool):
    """Five hundred updates in the same world without doubt."""
    problem, state = world_of_two_sides(linear_pool, doubt=0.0, ends=0.0), start
    for _ in range(500):
        state, _ = update(state, problem)
    return algorithm, problem, state


def test_critics_learn_the_states_of_before_the_step(trained):
    _, problem, state = trained
    places = problem.standardizer(jnp.array([[-0.8], [0.8]]))
    promised = jnp.mean(state.critics(places, jnp.zeros((2, 1))), axis=0) * problem.reward_scale
    # q(s, 0) = s + gamma V(-s) and V(s) - V(-s) = 2 s / (1 + gamma). Trained on the states of after the step, the
    # imagined half of the loss would pull towards the opposite sign.
    gap = 1.6 - DISCOUNT * 1.6 / (1 + DISCOUNT)
    assert float(promised[1] - promised[0]) == pytest.approx(gap, rel=0.15)


def test_the_policy_moves_to_the_better_action(trained, start):
    algorithm, problem, state = trained
    places = np.array([[-0.8], [0.0], [0.8]], np.float32)
    before, after = (algorithm.policy(s, problem).act(places) for s in (start, state))
    assert np.all(after > before + 0.2)
    assert np.all(after > 0.6)


@pytest.mark.parametrize(
    "settings",
    [
        {"potential_mix": 1.5},
        {"potential_mix": -0.1},
        {"reference_candidates": 0},
        {"clone_best": 0.0},
    ],
)
def test_impossible_settings_are_refused(settings):
    with pytest.raises(UsageError, match="must be"):
        PhyB(**settings)
