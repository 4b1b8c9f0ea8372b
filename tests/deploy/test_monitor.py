"""Watching new logs of the liquidation task: the same trader, another one, and the run's own policy."""

import dataclasses
import json

import numpy as np
import pytest

import phyb
from phyb.cli import main
from phyb.data.collect import collect_liquidation
from phyb.data.log import FIELDS, Log
from phyb.deploy.ground import Ground, disagreement
from phyb.dynamics.rows import split_rows
from phyb.envs.liquidation import DEFAULT_SPEC, initial_states, transition
from phyb.errors import UsageError


def trading(act, episodes=60, seed=1):
    """A log of whoever maps states to actions."""
    generator, bound = np.random.default_rng(seed), np.ones(1, np.float32)
    states, running, steps = initial_states(generator.standard_normal(episodes)), np.ones(episodes, bool), []
    for _ in range(DEFAULT_SPEC.horizon):
        actions = np.asarray(act(states), np.float32)
        after, rewards, ends = transition(states, actions, generator.standard_normal(episodes))
        steps.append((running, states, actions, rewards.astype(np.float32), after, ends, np.zeros_like(ends)))
        running, states = running & ~ends, after
    kept, *columns = (np.stack(column, axis=1) for column in zip(*steps, strict=True))
    rows = dict(zip(FIELDS, (column[kept] for column in columns), strict=True))
    return Log(**rows, action_low=-bound, action_high=bound)


def slices(states):
    return np.full((len(states), 1), 0.05)


def test_the_same_trader_is_fine_and_another_one_is_not(run):
    same = phyb.monitor(run, collect_liquidation(1000, 99))
    assert same["verdict"] == "fine"
    assert not same["earned_by_policy"]
    assert same["return"] is None
    assert [check["name"] for check in same["checks"]] == ["range", "disagreement", "errors", "behaviour"]
    assert all(check["p"] > 0.01 for check in same["checks"])
    other = phyb.monitor(run, trading(slices))
    assert other["verdict"] == "alarm"
    assert "another behaviour" in " ".join(other["words"])
    json.dumps(other, allow_nan=False)


def test_rows_outside_the_data_are_counted(run):
    log, up = collect_liquidation(1000, 98), np.array([0, 0, 3], np.float32)
    moved = dataclasses.replace(log, observations=log.observations + up)
    moved = dataclasses.replace(moved, next_observations=log.next_observations + up)
    found = {check["name"]: check for check in phyb.monitor(run, moved)["checks"]}
    assert found["range"]["alarm"]
    assert found["range"]["new"] > 0.9
    assert found["range"]["holdout"] < 0.1


def test_a_log_of_the_runs_policy_is_known_by_its_actions_and_judged_by_its_returns(run):
    found = phyb.monitor(run, trading(run.policy.act))
    assert found["earned_by_policy"]
    assert found["share_of_policy_actions"] == 1.0
    assert "behaviour" not in [check["name"] for check in found["checks"]]
    assert found["return"]["belief"] == run.result["belief_return"]
    assert found["return"]["mean"] == pytest.approx(trading(run.policy.act).episode_returns().mean(), rel=1e-4)


def test_a_return_below_that_under_the_belief_is_an_alarm(run, monkeypatch):
    high = run.result | {"belief_return": 1e3, "belief_std_error": 1.0}
    monkeypatch.setitem(run.__dict__, "result", high)
    found = phyb.monitor(run, trading(run.policy.act))
    assert found["return"]["alarm"]
    assert found["verdict"] == "alarm"
    assert "less than the 1000 under the belief" in " ".join(found["words"])


def test_runs_without_models_are_judged_by_what_needs_none(run, monkeypatch):
    monkeypatch.setattr(Ground, "of_run", lambda run: Ground.of(run.log, split_rows(run.log, 0.3, 0), None))
    same, other = phyb.monitor(run, collect_liquidation(1000, 99)), phyb.monitor(run, trading(slices))
    assert [check["name"] for check in same["checks"]] == ["range", "behaviour"]
    assert (same["verdict"], other["verdict"]) == ("fine", "alarm")
    assert any("learned no models" in sentence for sentence in same["words"])


def test_exit_codes_and_json(run, tmp_path, capsys):
    cases = (("same", collect_liquidation(1000, 99), 0), ("other", trading(slices), 7))
    for name, log, code in (*cases, ("few", trading(slices, episodes=1), 8)):
        phyb.save_log(log, tmp_path / f"{name}.npz")
        command = [
            "monitor",
            str(run.folder),
            str(tmp_path / f"{name}.npz"),
            "--cache",
            str(run.folder.parent / "cache"),
        ]
        if code == 0:
            main(command)
            assert "Fine" in capsys.readouterr().out
            continue
        with pytest.raises(SystemExit) as ended:
            main([*command, "--json"])
        assert ended.value.code == code
        assert json.loads(capsys.readouterr().out)["verdict"] == ("alarm" if code == 7 else "unclear")


def test_a_log_of_another_task_is_refused(run, linear_log):
    wide = collect_liquidation(200, 0)
    wide = dataclasses.replace(wide, observations=wide.observations[:, :2], next_observations=wide.observations[:, :2])
    with pytest.raises(UsageError, match="observations have 2 numbers, those of the run's log 3"):
        phyb.monitor(run, wide)


def test_disagreement_is_in_units_of_the_log_and_does_not_depend_on_the_batch(linear_pool):
    # Two models that say +1 and -1 about the first number and the same about all others, of units 1.
    weights, biases = np.zeros((2, 4, 4)), np.zeros((2, 4))
    biases[0, 0], biases[1, 0] = 1.0, -1.0
    pool, rows = linear_pool(weights, biases), np.random.default_rng(0).normal(size=(1300, 4))
    found = disagreement(pool, rows[:, :3], rows[:, 3:])
    np.testing.assert_allclose(found, np.full(1300, 0.5), rtol=1e-6)  # sqrt(1 / 4)
    np.testing.assert_allclose(disagreement(pool, rows[:3, :3], rows[:3, 3:]), found[:3], rtol=1e-6)
