"""Exported policies: the same actions as the policy, in programs that know nothing of it."""

import dataclasses
import hashlib
import json
import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import pytest

import phyb
from phyb.algorithms.problem import make_problem
from phyb.algorithms.registry import ALGORITHMS, load
from phyb.algorithms.settings import preset
from phyb.cli import main
from phyb.deploy.export import CHECKED_ROWS, TOLERANCE, spread_observations
from phyb.errors import MissingExtraError, UsageError
from phyb.fields import changed
from phyb.policy.actor import Actor, Gaussian
from phyb.policy.policy import Policy

LOW, HIGH = np.array([-2.0], np.float32), np.array([3.0], np.float32)
SMALL = {"policy_hidden": (16, 16), "clone_steps": 0}


def policy_of(name, log, pool):
    """A policy of the kind that an algorithm deploys, with random weights; nothing is trained or compiled."""
    agent = preset("cpu", name).agent
    fields = {field.name for field in dataclasses.fields(agent)}
    algorithm = load(name)(changed(agent, {key: SMALL[key] for key in SMALL if key in fields}), steps=1)
    problem = make_problem(log, pool if algorithm.needs_pool else None, discount=0.9, horizon=10)
    blank = jax.eval_shape(lambda: algorithm.policy(algorithm.init(jax.random.key(0), problem), problem))
    rng = np.random.default_rng(1)
    filled = jax.tree.map(lambda leaf: jnp.asarray(rng.normal(size=leaf.shape) * 0.3, leaf.dtype), blank)
    return Policy(filled.actor, problem.standardizer, jnp.asarray(LOW), jnp.asarray(HIGH))


@pytest.fixture(scope="module")
def tanh_policy(linear_log):
    return policy_of("bc", linear_log(), None)


@pytest.mark.parametrize("name", list(ALGORITHMS))
def test_the_policy_of_every_algorithm_is_the_same_in_every_format(name, linear_log, linear_pool, tmp_path):
    policy = policy_of(name, linear_log(), linear_pool(np.zeros((2, 4, 4)), np.zeros((2, 4))))
    observations = spread_observations(policy, None)
    actions = policy.act(observations)
    assert len(observations) == 10_000
    assert np.ptp(actions) > 0.3  # random weights give policies that do something
    for file in ("policy.onnx", "policy.py"):
        found = phyb.export(policy, tmp_path / file)
        assert found.largest_difference <= TOLERANCE
    names: dict = {}
    exec((tmp_path / "policy.py").read_text(), names)
    assert np.max(np.abs(names["act"](observations) - actions)) <= 1e-5 * 2.5
    np.testing.assert_allclose(names["act"](observations[0]), actions[0], atol=1e-5)
    with pytest.raises(ValueError, match="an observation has 3 numbers, found shape"):
        names["act"](observations[:, :2])


def test_files_run_where_phyb_and_jax_do_not_exist(tanh_policy, tmp_path):
    rows = spread_observations(tanh_policy, None)
    np.save(tmp_path / "rows.npy", rows)
    np.save(tmp_path / "actions.npy", tanh_policy.act(rows))
    phyb.export(tanh_policy, tmp_path / "policy.onnx")
    phyb.export(tanh_policy, tmp_path / "policy.py")
    code = """
import sys, numpy as np
sys.modules.update(phyb=None, jax=None, onnx=None)
rows, wanted = np.load("rows.npy"), np.load("actions.npy")
import policy
assert np.abs(policy.act(rows) - wanted).max() <= 2.5e-5
import onnxruntime
session = onnxruntime.InferenceSession("policy.onnx", providers=["CPUExecutionProvider"])
for some in (rows, rows[:1]):
    found, = session.run(None, {"observations": some})
    assert found.dtype == np.float32 and np.abs(found - wanted[:len(some)]).max() <= 2.5e-5
print(session.get_modelmeta().custom_metadata_map["action_low"])
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout == "[-2.0]\n", done.stderr


def test_a_file_says_where_it_comes_from(run, tmp_path):
    found = phyb.export(run.folder, tmp_path / "policy.onnx")
    model = onnx.load(tmp_path / "policy.onnx")
    about = {entry.key: json.loads(entry.value) for entry in model.metadata_props}
    assert about == found.about
    assert (about["algorithm"], about["action_low"], about["action_high"]) == ("mopo", [-1.0], [1.0])
    assert (about["checked_on"], about["tolerance"]) == (10_000, 1e-5)
    for file, key in (("config.json", "config_sha256"), ("policy/policy.safetensors", "policy_sha256")):
        assert about[key] == hashlib.sha256((run.folder / file).read_bytes()).hexdigest()
    assert about["phyb_version"] == model.producer_version == run.config["versions"]["phyb"]
    names: dict = {}
    exec((phyb.export(run, tmp_path / "policy.py").path).read_text(), names)
    assert names["ABOUT"] == about


def test_observations_of_the_check_lie_within_the_range_of_the_log_and_beyond(run, tanh_policy):
    rows, low, high = spread_observations(run.policy, run), run.log.observations.min(0), run.log.observations.max(0)
    outside = ((rows < low) | (rows > high)).any(axis=1)
    assert len(rows) == CHECKED_ROWS
    assert not outside[:5000].any()
    assert outside[5000:].mean() > 0.8
    units = tanh_policy.standardizer
    assert np.all(np.ptp(spread_observations(tanh_policy, None), axis=0) > 8.0 * np.asarray(units.scale))


def test_the_command_line_exports_and_overwrites_nothing(run, tmp_path, capsys):
    command = ["export", str(run.folder), "--out", str(tmp_path / "policy.py"), "--to", "numpy"]
    main(command)
    assert "10,000 observations" in capsys.readouterr().out
    with pytest.raises(SystemExit) as ended:
        main(command)
    assert ended.value.code == 2
    assert "already exists" in capsys.readouterr().err


class Liar(Actor):
    def describe(self, to, observations):
        return to.apply("tanh", to.apply("add", to.network(self.trunk, observations, outputs=1), 0.01))


class TooWide(Actor):
    def describe(self, to, observations):
        return to.apply("tanh", to.network(self.trunk, observations))


class Broken(Actor):
    def describe(self, to, observations):
        return to.apply("matmul", observations, np.zeros((7, 1)))


class Halved(Actor):
    """Computes something of its own, and inherits what another computes."""

    def gaussian(self, observations):
        mean, log_std = super().gaussian(observations)
        return Gaussian(0.5 * mean, log_std)


class Renamed(Actor):
    """Changes nothing of what is deployed."""

    def with_spread(self, factor):
        return self


def test_a_file_that_would_act_otherwise_is_not_written(tanh_policy, tmp_path):
    cases: list[tuple[Any, str]] = [
        (Liar, "Its actions would differ from those of the policy by 0.01 of half"),
        (TooWide, r"actions of shape \(2,\), expected \(1,\)"),
        (Broken, "cannot be computed"),
        (Halved, "has its own gaussian and does not say in `describe` what it computes"),
    ]
    for kind, message in cases:
        policy = dataclasses.replace(tanh_policy, actor=kind(jax.random.key(0), 3, 1, (4,)))
        for file in ("policy.py", "policy.onnx"):
            with pytest.raises(UsageError, match=message):
                phyb.export(policy, tmp_path / file)
    assert not list(tmp_path.iterdir())
    liar: Any = Liar
    policy = dataclasses.replace(tanh_policy, actor=liar(jax.random.key(0), 3, 1, (4,)))
    assert phyb.export(policy, tmp_path / "policy.py", tolerance=0.02).about["tolerance"] == 0.02
    renamed: Any = Renamed
    harmless = dataclasses.replace(tanh_policy, actor=renamed(jax.random.key(0), 3, 1, (4,)))
    assert phyb.export(harmless, tmp_path / "policy.py").path.exists()


def test_requests_that_cannot_be_carried_out(tanh_policy, tmp_path, monkeypatch):
    cases: list[Any] = [
        ("policy.pt", None, "ends in neither"),
        ("policy.pt", "torch", "expected one of onnx, numpy"),
        ("policy.py", "onnx", r"ends in \.onnx"),
        ("my-policy.py", None, "cannot be imported"),
    ]
    for file, to, message in cases:
        with pytest.raises(UsageError, match=message):
            phyb.export(tanh_policy, tmp_path / file, to)
    for package in ("onnx", "onnxruntime"):
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, package, None)
            with pytest.raises(MissingExtraError, match=r"phyb\[onnx\]"):
                phyb.export(tanh_policy, tmp_path / "policy.onnx")
    assert not list(tmp_path.iterdir())
