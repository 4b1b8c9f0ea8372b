"""The termination rules against the simulators themselves, and against logs recorded in them."""

import warnings
from pathlib import Path

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from phyb.data.files import load_log
from phyb.envs.locomotion import ant_termination, hopper_termination, walker2d_termination
from phyb.envs.tasks import TERMINATION_RULES, find_task

LOGS = Path(__file__).parents[3] / "shared" / "data"
FALLING = ["Hopper", "Walker2d", "Ant"]
ENV_IDS = [*(f"{body}-{version}" for body in (*FALLING, "HalfCheetah") for version in ("v5", "v4")), "Pendulum-v1"]
ROWS = 4000


def visited(env_id):
    """Successors and flags of some steps, and the top speed: three kinds of actions, every other episode thrown."""
    if env_id != "Pendulum-v1":
        pytest.importorskip("mujoco")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # that v4 is out of date is no news
        env = gymnasium.make(env_id)
    generator = np.random.default_rng(7)
    low, high = env.action_space.low, env.action_space.high  # pyright: ignore[reportAttributeAccessIssue]
    successors, flags, speeds = [], [], [0.0]
    while len(flags) < ROWS:
        env.reset(seed=int(generator.integers(2**31)))
        if env_id != "Pendulum-v1" and generator.random() < 0.5:
            throw(env.unwrapped, generator)
        held, style = generator.uniform(low, high), generator.integers(3)
        for _ in range(60):  # no episode is long, so that none is most of the sample
            drawn = generator.uniform(low, high)
            action = (drawn, np.where(drawn > 0.5 * (low + high), high, low), 0.1 * drawn + 0.9 * held)[style]
            successor, _, terminated, truncated, _ = env.step(action.astype(np.float32))
            successors.append(successor)
            flags.append(terminated)
            if env_id != "Pendulum-v1":
                speeds.append(float(np.abs(env.unwrapped.data.qvel).max()))  # pyright: ignore[reportAttributeAccessIssue]
            if terminated or truncated:
                break
    env.close()
    return np.array(successors), np.array(flags), max(speeds)


def throw(env, generator):
    """Put the body into a state that no behaviour would choose: lifted, leaning, bent, fast."""
    positions = env.init_qpos + generator.normal(0.0, 0.15, env.model.nq)
    height = 2 if env.model.nq > 10 else 1
    positions[height] += generator.uniform(-0.3, 0.9)
    env.set_state(positions, generator.normal(0.0, 3.0, env.model.nv))


@pytest.mark.parametrize("env_id", ENV_IDS)
def test_the_rule_agrees_with_the_simulator_on_every_visited_state(env_id):
    successors, terminated, speed = visited(env_id)
    task = find_task(env_id)
    assert task is not None
    assert task.termination is not None
    rule = TERMINATION_RULES[task.termination]
    found = rule(None, None, successors)
    assert found.dtype == bool
    np.testing.assert_array_equal(found, terminated)
    compiled = jax.jit(lambda x: rule(None, None, x))
    np.testing.assert_array_equal(compiled(jnp.asarray(successors, jnp.float32)), terminated)
    assert np.sum(~terminated) > 1000
    assert (np.sum(terminated) > 20) == env_id.startswith(tuple(FALLING))
    if env_id.startswith("Hopper"):  # beyond 100 the simulator would see what observations do not show
        assert 10.0 < speed < 100.0


@pytest.mark.parametrize("name", ["hopper", "walker2d", "ant"])
def test_each_bound_of_a_rule_is_met_from_both_sides(name):
    rule = TERMINATION_RULES[name]
    upright = np.zeros((1, 27))
    upright[0, 0] = {"hopper": 1.25, "walker2d": 1.25, "ant": 0.75}[name]
    assert not rule(None, None, upright)[0]
    met = {  # (column, value) that go on, and that end
        "hopper": (
            [(0, 0.71), (0, 50.0), (1, 0.19), (1, -0.19), (3, 99.9), (3, -99.9)],
            [
                (0, 0.7),
                (0, np.inf),
                (1, 0.2),
                (1, -0.2),
                (3, 100.0),
                (3, -100.0),
                (9, np.inf),
                (9, -np.inf),
                (9, np.nan),
            ],
        ),
        "walker2d": (
            [(0, 0.81), (0, 1.99), (1, 0.99), (1, -0.99)],
            [(0, 0.8), (0, 2.0), (1, 1.0), (1, -1.0)],
        ),
        "ant": (
            [(0, 0.2), (0, 1.0), (5, 1e9)],
            [(0, 0.19), (0, 1.01), (9, np.inf), (9, -np.inf), (9, np.nan)],
        ),
    }[name]
    for ends, places in enumerate(met):
        for column, value in [*places, *([(0, np.nan), (1, np.nan)] if ends else [])]:
            state = upright.copy()
            state[0, column] = value
            assert rule(None, None, state)[0] == bool(ends), (column, value)


def test_very_negative_joints_end_the_hoppers_episode():
    """The released research code takes `abs` of a boolean and lets them go on."""
    state = np.zeros((1, 11))
    state[0, 0], state[0, 3] = 1.25, -150.0

    def released(successors):
        in_range = np.abs(successors[:, 1:] < 100).all(axis=-1)
        return ~(in_range & (successors[:, 0] > 0.7) & (np.abs(successors[:, 1]) < 0.2))

    assert not released(state)[0]
    assert hopper_termination(None, None, state)[0]


@pytest.mark.parametrize("rule", TERMINATION_RULES.values(), ids=TERMINATION_RULES)
@pytest.mark.parametrize("module", [np, jnp])
def test_rules_take_any_leading_shape(rule, module):
    states = module.asarray(np.random.default_rng(0).normal(0.8, 0.5, (4, 7, 5, 27)))
    found = np.asarray(rule(None, None, states))
    assert (found.shape, found.dtype) == ((4, 7, 5), bool)
    np.testing.assert_array_equal(found.reshape(-1), rule(None, None, states.reshape(-1, 27)))


@pytest.mark.parametrize("rule", [hopper_termination, walker2d_termination, ant_termination])
def test_only_the_successor_decides(rule):
    generator = np.random.default_rng(1)
    here, there = generator.normal(0.8, 0.5, (2, 100, 27))
    np.testing.assert_array_equal(rule(here, here[:, :3], there), rule(there, None, there))
    assert 0 < rule(here, None, there).sum() < 100


@pytest.mark.parametrize("path", sorted(LOGS.glob("*.hdf5")) or [None], ids=lambda path: path and path.stem)
def test_the_rule_agrees_with_recorded_logs(path):
    if path is None:
        pytest.skip("no recorded logs here")
    log = load_log(path)
    rule = TERMINATION_RULES[path.stem.partition("-")[0]]
    np.testing.assert_array_equal(rule(log.observations, log.actions, log.next_observations), log.terminated)
    assert log.terminated.any() == path.stem.startswith("hopper")
