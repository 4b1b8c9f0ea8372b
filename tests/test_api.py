"""What `import phyb` offers: objects to hold, a loop of one's own, and runs that open again."""

import inspect
import re
import subprocess
import sys

import gymnasium
import jax
import numpy as np
import pytest
from rich.console import Console

import phyb
import phyb.algorithms
from phyb import errors
from phyb.algorithms.registry import ALGORITHMS, load
from phyb.data.collect import collect_liquidation

QUIET = Console(quiet=True)
TINY = {
    "policy_hidden": (8,),
    "steps": 20,
    "log_every": 10,
    "evaluate_every": 10,
    "checkpoint_every": 10,
    "transitions": 500,
    "evaluation_episodes": 50,
    "final_episodes": 60,
}


def test_all_algorithms_and_errors_are_exported_by_their_class_names():
    for name in ALGORITHMS:
        kind = load(name)
        assert getattr(phyb, kind.__name__) is getattr(phyb.algorithms, kind.__name__) is kind
    with pytest.raises(AttributeError, match="has no attribute 'Nobody'"):
        phyb.algorithms.Nobody  # noqa: B018
    kinds = {name for name, kind in vars(errors).items() if inspect.isclass(kind) and issubclass(kind, Exception)}
    assert kinds <= set(phyb.__all__)
    for name in phyb.__all__:
        assert getattr(phyb, name) is not None


def test_importing_it_loads_nothing_heavy():
    code = "import sys, phyb; sys.exit(any(m in sys.modules for m in ('jax', 'numpy', 'gymnasium', 'matplotlib')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_documented_loop_of_ones_own_runs_without_a_folder(tmp_path, monkeypatch, capsys):
    assert phyb.__doc__ is not None
    _, _, block = phyb.__doc__.partition("needs no folder:")
    code = "\n".join(re.findall(r"^    (.*)$", block, flags=re.MULTILINE))
    code = (
        code.replace("steps=1000", "steps=20").replace("range(1000)", "range(20)").replace("episodes=20", "episodes=2")
    )
    rng = np.random.default_rng(0)
    env, rows = gymnasium.make("Pendulum-v1"), []
    seen, _ = env.reset(seed=0)
    for step in range(400):
        action = rng.uniform(-2, 2, 1).astype(np.float32)
        after, reward, _, cut, _ = env.step(action)
        rows.append((seen, action, np.float32(reward), after, False, cut or step == 399))
        seen = env.reset()[0] if cut else after
    seen, actions, rewards, after, ended, cut = (np.array(column) for column in zip(*rows, strict=True))
    bound = np.full(1, 2.0, np.float32)
    phyb.save_log(phyb.Log(seen, actions, rewards, after, ended, cut, -bound, bound), tmp_path / "mylog.hdf5")
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "phyb.__doc__", "exec"), {"phyb": phyb, "jax": jax})
    assert float(capsys.readouterr().out.split()[-1]) < 0.0
    assert [path.name for path in tmp_path.iterdir()] == ["mylog.hdf5"]


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """A run that a callback stopped half-way."""
    place = tmp_path_factory.mktemp("api")
    models = {"pool_size": 2, "model_hidden": (8,), "model_steps": 20, "model_check_every": 10, "fit_steps": 20}
    algorithm = phyb.MOPO(**TINY, **models, accept_poor_pool=True, rollout_starts=20)
    stop = [lambda step, metrics: step == 10]
    return algorithm.fit("liquidation", out=place / "run", cache=place, callbacks=stop, console=QUIET)


def test_a_run_that_a_callback_stopped_is_evaluated_and_reported(stopped):
    assert stopped.result["stopped_at"] == 10
    assert stopped.result["steps"] == 20
    assert np.isfinite(stopped.result["belief_return"])
    assert (stopped.folder / "report.html").is_file()
    assert max(line["step"] for line in stopped.metrics if line["stage"] == "policy") == 10


def test_a_run_opens_again_with_all_that_a_fresh_one_gives(stopped):
    again = phyb.open_run(stopped.folder, cache=stopped.folder.parent, console=QUIET)
    assert again.algorithm == stopped.algorithm
    assert again.result == stopped.result
    assert again.metrics == stopped.metrics
    assert again.pool is not None
    for ours, theirs in ((again.state, stopped.state), (again.pool, stopped.pool), (again.problem, stopped.problem)):
        leaves = zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True)
        assert all(np.array_equal(jax.random.key_data(a) if _is_key(a) else a, _plain(b)) for a, b in leaves)


def _is_key(leaf):
    return isinstance(leaf, jax.Array) and jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _plain(leaf):
    return jax.random.key_data(leaf) if _is_key(leaf) else leaf


def test_the_task_comes_from_the_log_and_not_from_its_name(tmp_path):
    phyb.save_log(collect_liquidation(500, 0), tmp_path / "ant-hopper-medium.npz")
    with pytest.raises(phyb.UsageError, match="transitions: 500, has no effect here: the log given is used whole"):
        phyb.BC(**TINY).fit(tmp_path / "ant-hopper-medium.npz", out=tmp_path / "run", console=QUIET)
    assert not (tmp_path / "run").exists()
    algorithm = phyb.BC(**{name: value for name, value in TINY.items() if name != "transitions"})
    run = algorithm.fit(tmp_path / "ant-hopper-medium.npz", out=tmp_path / "run", console=QUIET)
    assert run.config["resolved"]["task"] == "liquidation"
    assert "env_id" in run.config["resolved"]["task_by"]
    assert run.result["mean_return"] is None  # no simulator was asked for


def test_a_policy_is_evaluated_in_an_environment_that_the_user_made_and_keeps():
    class Push:
        def act(self, observations):
            return np.zeros((len(observations), 1), np.float32)

    env = gymnasium.make("Pendulum-v1")
    found = phyb.evaluate(Push(), env, episodes=3, seed=1, console=QUIET)
    assert found["env_id"] == "Pendulum-v1"
    assert found["episodes"] == 3
    assert found["min"] < found["mean_return"] < found["max"] < 0.0
    env.reset()  # still open
    assert found == phyb.evaluate(Push(), env, episodes=3, seed=1, console=QUIET)
