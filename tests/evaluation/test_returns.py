import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from phyb.envs.liquidation import ENV_ID
from phyb.errors import MissingExtraError, UsageError
from phyb.evaluation import returns as module
from phyb.evaluation.returns import ReturnSummary, cvar, episode_returns, mean_interval, summarize


class Countdown(gymnasium.Env):
    """Episodes of random length 1 to 9 that pay 1 per step: the return is the length."""

    metadata = {"render_modes": []}  # noqa: RUF012
    observation_space = gymnasium.spaces.Box(0.0, 10.0, (1,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._left = int(self.np_random.integers(1, 10))
        return np.array([self._left], np.float32), {}

    def step(self, action):
        assert action in self.action_space
        self._left -= 1
        return np.array([self._left], np.float32), 1.0, self._left == 0, False, {}


class Endless(Countdown):
    """Never terminates by itself; the registered time limit truncates it after 4 steps."""

    def step(self, action):
        return np.ones(1, np.float32), 1.0, False, False, {}


class Discrete(Countdown):
    action_space = gymnasium.spaces.Discrete(2)  # pyright: ignore[reportAssignmentType]


@pytest.fixture(autouse=True)
def _registered():
    ids = {"test/Countdown-v0": Countdown, "test/Discrete-v0": Discrete}
    for env_id, creator in ids.items():
        gymnasium.register(env_id, entry_point=creator)
    gymnasium.register("test/Endless-v0", entry_point=lambda **_: Endless(), max_episode_steps=4)
    yield
    for env_id in (*ids, "test/Endless-v0"):
        del gymnasium.registry[env_id]


def hold(observations: np.ndarray) -> np.ndarray:
    return np.zeros((len(observations), 1))


def test_selling_at_once_earns_the_first_price():
    found = episode_returns(lambda obs: np.ones((len(obs), 1)), ENV_ID, 12_345, seed=0)
    assert found.shape == (12_345,)
    assert found.mean() == pytest.approx(100.0, abs=0.2)
    assert found.std() == pytest.approx(5.0, abs=0.2)


def test_each_environment_runs_its_quota():
    # With 16 copies and 40 episodes the first eight copies run three episodes and the others two.
    found = episode_returns(hold, "test/Countdown-v0", 40, seed=3)
    seeds = np.random.SeedSequence(3).generate_state(16).tolist()
    expected = []
    for index, seed in enumerate(seeds):
        env = Countdown()
        lengths = [env.reset(seed=seed)[0][0]]
        lengths += [env.reset()[0][0] for _ in range(2)]
        expected += lengths[: 3 if index < 8 else 2]
    np.testing.assert_array_equal(found, expected)


def test_short_episodes_are_not_over_represented():
    found = episode_returns(hold, "test/Countdown-v0", 1600, seed=0)
    assert found.mean() == pytest.approx(5.0, abs=4 * 2.58 / np.sqrt(1600))


def test_truncated_episodes_count():
    np.testing.assert_array_equal(episode_returns(hold, "test/Endless-v0", 5, seed=0), np.full(5, 4.0))


def test_same_step_autoreset_is_understood(monkeypatch):
    def same_step(env_id, num_envs, vectorization_mode):
        mode = {"autoreset_mode": AutoresetMode.SAME_STEP}
        return make_vec(env_id, num_envs=num_envs, vectorization_mode="sync", vector_kwargs=mode)

    expected = episode_returns(hold, "test/Countdown-v0", 40, seed=3)
    make_vec = gymnasium.make_vec
    monkeypatch.setattr(module.gymnasium, "make_vec", same_step)
    np.testing.assert_array_equal(episode_returns(hold, "test/Countdown-v0", 40, seed=3), expected)


def test_environments_without_autoreset_are_refused(monkeypatch):
    def disabled(env_id, num_envs, vectorization_mode):
        mode = {"autoreset_mode": AutoresetMode.DISABLED}
        return make_vec(env_id, num_envs=num_envs, vectorization_mode="sync", vector_kwargs=mode)

    make_vec = gymnasium.make_vec
    monkeypatch.setattr(module.gymnasium, "make_vec", disabled)
    with pytest.raises(UsageError, match="new episodes by itself"):
        episode_returns(hold, "test/Countdown-v0", 4, seed=0)


@pytest.mark.parametrize("env_id", [ENV_ID, "test/Countdown-v0", "Pendulum-v1"])
def test_the_seed_decides_the_returns(env_id):
    first, again, other = (episode_returns(lambda obs: np.ones((len(obs), 1)), env_id, 20, seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert np.mean(first == other) < 0.5


def test_actions_are_clipped_to_the_action_space():
    episode_returns(lambda obs: np.full((len(obs), 1), 9.0), "test/Countdown-v0", 3, seed=0)


def test_progress_counts_up_to_the_number_of_episodes():
    seen = []
    episode_returns(hold, "test/Countdown-v0", 50, seed=0, progress=seen.append)
    assert seen == sorted(seen)
    assert seen[-1] == 50


def test_the_batch_size_never_changes():
    sizes = set()

    def act(observations):
        sizes.add(len(observations))
        return hold(observations)

    episode_returns(act, ENV_ID, 7000, seed=0)
    assert sizes == {5000}


@pytest.mark.parametrize("env_id", ["Nope-v0", "nobody/Nope-v0", "Hopper-v99", "not an id", "no_such_module:X-v0"])
def test_unknown_environments_are_named(env_id):
    with pytest.raises(UsageError, match=f"cannot make environment '{env_id}'"):
        episode_returns(hold, env_id, 1, seed=0)


def test_an_id_may_name_the_module_that_registers_it():
    assert episode_returns(hold, f"phyb.envs:{ENV_ID}", 3, seed=0).shape == (3,)


@pytest.mark.parametrize(
    ("message", "error", "text"),
    [
        (
            'MuJoCo is not installed, run `pip install "gymnasium[mujoco]"`',
            MissingExtraError,
            r"phyb\[mujoco\]",
        ),
        ("Box2D is not installed", UsageError, "Box2D is not installed"),
    ],
)
def test_missing_simulators_are_named(monkeypatch, message, error, text):
    def fail(*args, **kwargs):
        raise gymnasium.error.DependencyNotInstalled(message)

    monkeypatch.setattr(module.gymnasium, "make_vec", fail)
    with pytest.raises(error, match=text):
        episode_returns(hold, "Hopper-v5", 1, seed=0)


def test_discrete_actions_are_refused():
    with pytest.raises(UsageError, match=r"Discrete\(2\)"):
        episode_returns(hold, "test/Discrete-v0", 1, seed=0)


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda obs: np.zeros(len(obs)), r"shape \(4,\).*expects finite actions of shape \(4, 1\)"),
        (lambda obs: np.full((len(obs), 1), np.nan), "4 of them not finite"),
    ],
)
def test_broken_policies_are_reported(act, message):
    with pytest.raises(UsageError, match=message):
        episode_returns(act, ENV_ID, 4, seed=0)


def test_environments_are_closed_also_after_an_error(monkeypatch):
    closed = []
    monkeypatch.setattr(Countdown, "close", lambda self: closed.append(self))
    with pytest.raises(ZeroDivisionError):
        episode_returns(lambda obs: hold(obs) / (1 // 0), "test/Countdown-v0", 4, seed=0)
    assert len(closed) == 4


def test_at_least_one_episode():
    with pytest.raises(UsageError, match="at least 1 episode"):
        episode_returns(hold, ENV_ID, 0, seed=0)


def test_summary_of_known_numbers():
    summary = summarize(np.arange(20.0))
    assert summary == ReturnSummary(
        mean=9.5,
        std_error=np.std(np.arange(20.0), ddof=1) / np.sqrt(20),
        cvar_10=0.5,
        episodes=20,
        min=0.0,
        max=19.0,
    )


def test_summary_of_one_episode():
    summary = summarize(np.array([3.0]))
    assert (summary.mean, summary.cvar_10, summary.min, summary.max) == (3.0, 3.0, 3.0, 3.0)
    assert np.isnan(summary.std_error)


def test_summary_of_nothing_is_refused():
    with pytest.raises(UsageError, match="no episode returns"):
        summarize(np.array([]))


@pytest.mark.parametrize(("count", "level", "kept"), [(100, 0.29, 29), (19, 0.1, 1), (5, 0.1, 1), (10, 1.0, 10)])
def test_cvar_counts_whole_episodes(count, level, kept):
    values = np.random.default_rng(0).permutation(count).astype(float)
    assert cvar(values, level) == pytest.approx((kept - 1) / 2)


def test_the_interval_covers_the_true_mean_about_as_often_as_it_claims():
    generator = np.random.default_rng(0)
    draws = generator.exponential(10.0, (200, 60))
    found = np.array([mean_interval(each, resamples=300) for each in draws])
    assert 0.88 < np.mean((found[:, 0] <= 10.0) & (found[:, 1] >= 10.0)) < 0.98
    skewed = np.array([0.0] * 2 + [100.0] * 18)
    low, high = mean_interval(skewed) or (np.nan, np.nan)
    assert 90.0 - low > high - 90.0  # reaches further to the side of the rare falls
    assert high <= 100.0


def test_the_interval_narrows_with_episodes_and_with_less_confidence():
    returns = np.random.default_rng(1).normal(0.0, 1.0, 400)

    def width(interval):
        return interval[1] - interval[0]

    assert width(mean_interval(returns)) == pytest.approx(2 * 1.96 * returns.std() / 20, rel=0.1)
    assert width(mean_interval(returns, 0.5)) == pytest.approx(2 * 0.674 * returns.std() / 20, rel=0.15)
    assert width(mean_interval(returns[:100])) > 1.6 * width(mean_interval(returns))


def test_one_episode_has_no_interval_and_equal_ones_have_a_point():
    assert mean_interval(np.array([3.0])) is None
    assert mean_interval(np.full(5, 3.0)) == (3.0, 3.0)
