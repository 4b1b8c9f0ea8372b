"""The examples in docs/extending.md are complete, and work as the page says."""

import csv
import dataclasses
import io
import os
import re
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from rich.console import Console

import phyb
from phyb import registry
from phyb.cli import main, parse
from phyb.data.formats import FORMATS
from phyb.dynamics.cache import cached_pool, is_cached, pool_key
from phyb.dynamics.fit import PoolConfig
from phyb.errors import DataError, PhybError, UsageError
from phyb.policy.policy import load_policy
from phyb.reproduce.command import reproduce
from phyb.reproduce.registry import TABLES

PAGE = Path(__file__).parents[1] / "docs" / "extending.md"
MODULES = ("my_algorithm", "my_model", "my_actor", "my_format", "my_table")
POOL = PoolConfig(model="my_model:LinearModel", pool_size=2, model_steps=20, model_check_every=10, model_batch_size=8)
TRAINING = {"steps": 20, "log_every": 10, "evaluate_every": 20, "checkpoint_every": 10, "transitions": 200,
            "evaluation_episodes": 20, "final_episodes": 20}  # fmt: skip


@pytest.fixture
def examples(tmp_path, monkeypatch):
    """The folder of the modules on the page; what the user has named so far is forgotten."""
    blocks = re.findall(r"`(my_\w+)\.py`\.\n\n```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert tuple(name for name, _ in blocks) == MODULES
    folder = tmp_path / "modules"
    folder.mkdir()
    for name, text in blocks:
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr(registry, "_PLUGINS", set())
    monkeypatch.setattr(FORMATS, "_homes", dict(FORMATS._homes))
    yield folder
    for name in MODULES:
        sys.modules.pop(name, None)


def train(folder, algorithm="bc", pool=None, agent=None, **options):
    usual = phyb.preset("cpu", algorithm)
    changed = dataclasses.replace(usual.agent, policy_hidden=(8,), batch_size=8, **(agent or {}))
    training = dataclasses.replace(usual.training, **TRAINING, accept_poor_pool=True)
    settings = phyb.Settings(pool, changed, training)
    return phyb.train(
        "liquidation",
        algorithm=algorithm,
        settings=settings,
        out=folder,
        console=Console(file=io.StringIO()),
        **options,
    )


def test_an_algorithm_is_trained_refused_and_opened_again(examples, tmp_path, monkeypatch):
    run = train(tmp_path / "run", "my_algorithm:Weighted", agent={"temperature": 0.2})
    assert run.config["algorithm"] == "my_algorithm:Weighted"
    command = parse(["train", "liquidation", "--algorithm", "my_algorithm:Weighted", "--temperature", "0.2"])
    assert command.agent.temperature == 0.2
    monkeypatch.setattr(registry, "_PLUGINS", set())
    monkeypatch.delitem(sys.modules, "my_algorithm")
    with pytest.raises(DataError, match="PHYB_PLUGINS=my_algorithm"):
        _ = phyb.open_run(run.folder).algorithm
    assert "my_algorithm" not in sys.modules, "a file imported code"
    phyb.use_plugins("my_algorithm")
    assert type(phyb.open_run(run.folder).algorithm).__name__ == "Weighted"


def test_a_run_with_an_actor_of_ones_own_is_broken_off_and_resumed(examples, tmp_path, monkeypatch):
    agent = {"actor": "my_actor:SteadyActor"}
    whole = train(tmp_path / "whole", agent=agent)

    def fail(step, metrics):
        raise RuntimeError("enough")

    with pytest.raises(PhybError, match="enough"):
        train(tmp_path / "broken", agent=agent, callbacks=[fail])
    resumed = train(tmp_path / "broken", agent=agent, resume=True)
    one, other = ((run.folder / "policy" / "policy.safetensors").read_bytes() for run in (whole, resumed))
    assert one == other
    rows = np.zeros((3, 3), np.float32)
    np.testing.assert_array_equal(load_policy(whole.folder).act(rows), whole.policy.act(rows))
    monkeypatch.setattr(registry, "_PLUGINS", set())
    with pytest.raises(DataError, match=r"actor: found 'my_actor:SteadyActor'.*use_plugins\(\"my_actor\"\)"):
        load_policy(whole.folder)
    with pytest.raises(UsageError, match=r"is not made from phyb\.policy\.actor\.Actor"):
        train(tmp_path / "other", agent={"actor": "perturbed-decoder"})


def test_a_pool_of_ones_own_models_is_cached_and_follows_its_source(examples, tmp_path, linear_log):
    log, options = linear_log(episodes=8, steps=5), {"learn_termination": False, "folder": tmp_path}
    with pytest.raises(DataError, match="PHYB_PLUGINS=my_model"):
        cached_pool(log, POOL, 0, **options)
    phyb.use_plugins("my_model")
    found = [cached_pool(log, POOL, 0, **options) for _ in range(2)]
    assert [each.trained for each in found] == [True, False]
    assert type(found[1].pool.members).__name__ == "LinearModel"
    np.testing.assert_array_equal(*(jax.tree.leaves(each.pool.members)[0] for each in found))
    assert is_cached(log, POOL, 0, **options)
    before = pool_key(log, POOL, 0, False)
    with open(examples / "my_model.py", "a", encoding="utf-8") as file:
        file.write("# a change\n")
    sys.modules.pop("my_model")
    assert pool_key(log, POOL, 0, False) != before


def test_a_policy_learns_against_ones_own_models(examples, tmp_path):
    agent = {"actor": "my_actor:SteadyActor", "rollout_starts": 16, "rollout_length": 1, "clone_steps": 0}
    run = train(tmp_path / "run", "mopo", POOL, agent, cache=tmp_path / "cache")
    assert np.all(np.abs(run.policy.act(np.zeros((3, 3), np.float32))) <= 1.0)
    assert run.pool is not None
    assert type(run.pool.members).__name__ == "LinearModel"


def test_a_format_is_read_once_its_module_is_named(examples, tmp_path):
    path = tmp_path / "log.tsv"
    with open(path, "w", newline="") as file:
        writer = csv.writer(file, delimiter="\t")
        writer.writerow(["observation_0", "observation_1", "action_0", "reward", "terminated", "truncated"])
        writer.writerows([step, 0.5, (-1.0) ** step, 2.0 * step, 0, step == 3] for step in range(4))
    with pytest.raises(DataError, match="suffix"):
        phyb.load_log(path)
    phyb.use_plugins("my_format")
    log = phyb.load_log(path)
    np.testing.assert_array_equal(log.rewards, log.observations[:, 0] * 2.0)
    assert (log.observation_size, log.action_size, bool(log.truncated[-1])) == (2, 1, True)


def test_a_table_is_made(examples, tmp_path):
    table = TABLES.find("my_table:IMITATION")
    assert table.rows == ("td3bc", "bc")
    short = dataclasses.replace(table, quick=lambda usual: {"policy_hidden": (8,), "batch_size": 8, **TRAINING})
    options = {"seeds": 1, "jobs": 1, "algorithms": ["bc"], "out": tmp_path, "quick": True}
    reproduce(short, console=Console(file=io.StringIO()), **options)
    assert (tmp_path / "imitation.md").read_text().startswith("**ROUGH (--quick): Imitation, liquidation: 1 seed**")


def test_the_command_line_names_modules_by_the_environment(examples, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PHYB_PLUGINS", "no_such_module_here")
    with pytest.raises(SystemExit):
        main(["algorithms"])
    assert "cannot import no_such_module_here" in capsys.readouterr().err
    environment = {**os.environ, "PYTHONPATH": f"{examples}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    command = [sys.executable, "-m", "phyb.cli", "data", "describe", str(tmp_path / "no.tsv")]
    said = subprocess.run(command, env=environment | {"PHYB_PLUGINS": "my_format"}, capture_output=True, text=True)
    assert said.returncode == 2
    assert "suffix" not in said.stderr, "the format is known, the file is not there"
