"""Ranking finished runs without a simulator, in a world whose pool and policies are written down by hand.

A step pays a - 1/4 and halves the state; episodes are cut after 5 steps. One of the two models says a, the other
a - 1/2: under the belief an action a earns 5 (a - 1/2), in the average of the models and in truth 5 (a - 1/4). With a
discount of 0.8 that is also what fitted Q should find, (a - 1/4) / (1 - 0.8).
"""

import dataclasses
import io
import json
import shutil

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console

import phyb
from phyb.algorithms.phyb import PhyB, PhyBConfig
from phyb.algorithms.problem import make_problem
from phyb.algorithms.settings import Settings, TrainingConfig
from phyb.belief.backup import BeliefConfig
from phyb.cli import main
from phyb.data.log import Log
from phyb.dynamics.cache import pool_key
from phyb.dynamics.fit import PoolConfig
from phyb.envs.tasks import TaskChoice
from phyb.envs.termination import Termination
from phyb.errors import DataError, UsageError
from phyb.evaluation.fitted_q import FittedQConfig
from phyb.evaluation.in_training import evaluate_in_training, final_evaluation
from phyb.evaluation.select import ESTIMATES, average_of_models, ranks, std_error
from phyb.interrupt import StopRequests
from phyb.storage.store import Store
from phyb.training.folder import POLICY_FILES, RunFolder
from phyb.training.job import Job, write_or_compare_config
from phyb.training.progress import Stages

QUIET = Console(quiet=True)
POOL = PoolConfig(pool_size=2, model_hidden=())
SETTINGS = Settings(
    pool=POOL,
    agent=PhyBConfig(
        belief=BeliefConfig(ensemble_size=2, subset_size=1, draw="distinct"), policy_hidden=(4,), clone_steps=0
    ),
    training=TrainingConfig(steps=20, discount=0.8, termination="none"),
)
FIT = FittedQConfig(
    fit_steps=600, fit_networks=2, fit_hidden=(32,), fit_batch_size=64, fit_learning_rate=3e-3, fit_target_rate=0.05
)
POLICIES = {"bold": 0.6, "twin": 0.6, "calm": 0.0, "shy": -0.6}
EARLY = -0.2
"""What the policy of each run did after 10 of its 20 updates."""


def halving(episodes=40):
    rng = np.random.default_rng(0)
    states = rng.uniform(-1, 1, (episodes, 1)) * 0.5 ** np.arange(6)
    actions = rng.uniform(-1, 1, (5 * episodes, 1)).astype(np.float32)
    before, after = (part.reshape(-1, 1).astype(np.float32) for part in (states[:, :-1], states[:, 1:]))
    cut, bound = np.tile(np.arange(5) == 4, episodes), np.ones(1, np.float32)
    return Log(before, actions, actions[:, 0] - 0.25, after, np.zeros_like(cut), cut, -bound, bound)


def job_of(folder, log, env_id=None, settings=SETTINGS):
    task, termination = TaskChoice(None, "default"), Termination("none", "none")
    algorithm, stages, stop = PhyB(settings), Stages(QUIET), StopRequests()
    return Job("halving", algorithm, log, task, termination, env_id, 0, folder, stages, stop)


def write_run(folder, log, action, problem):
    """A finished run whose policy always takes this action, with a checkpoint of an earlier one."""
    folder = RunFolder(folder)
    folder.open()
    job = job_of(folder, log, "X-v0")
    algorithm = job.algorithm
    write_or_compare_config(job)
    blank = eqx.filter_eval_shape(algorithm.init, jax.random.key(0), problem)

    def state_of(action):
        def zeros(leaf):
            is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
            return jax.random.key(0) if is_key else jnp.zeros(leaf.shape, leaf.dtype)

        last = jnp.array([np.arctanh(action), 0.0], jnp.float32)
        return eqx.tree_at(lambda s: s.reference.average.trunk.biases[-1], jax.tree.map(zeros, blank), last)

    for step, taken in ((10, EARLY), (20, action)):
        sums, text = {"critic_loss": jnp.zeros(())}, np.zeros(7, np.uint8)
        folder.save_checkpoint((state_of(taken), sums, text), {"step": step}, keep=2)
    algorithm.policy(state_of(action), problem).save(folder.policy)
    folder.add(*POLICY_FILES)
    folder.save_json("result.json", {"mean_return": 5 * (action - 0.25), "std_error": 0.01})
    line = {"stage": "evaluation", "step": 10, "true_return": 5 * (EARLY - 0.25), "true_std_error": 0.01}
    folder.metrics.write_text(json.dumps(line) + "\n")


@pytest.fixture(scope="module")
def place(tmp_path_factory, linear_pool):
    """A log, a pool of two models in the cache, and four runs."""
    place = tmp_path_factory.mktemp("select")
    phyb.save_log(halving(), place / "halving.npz")
    log = phyb.load_log(place / "halving.npz")
    log = dataclasses.replace(log, provenance={"path": str(place / "halving.npz")})
    world = [[-0.5, 0.0], [0.0, 1.0]]
    pool = linear_pool([world, world], [[0.0, 0.0], [0.0, -0.5]])
    key = pool_key(log, POOL, 0, learn_termination=False)
    Store(place / "cache" / "pools" / key).save_tree("pool.safetensors", pool, {"curve": []})
    problem = make_problem(log, None, discount=0.8, horizon=5)
    for name, action in POLICIES.items():
        write_run(place / name, log, action, problem)
    return place


def select(place, *names, **kwargs):
    given = {"fit": FIT, "episodes": 200, "cache": place / "cache", "console": QUIET, **kwargs}
    return phyb.select_policies([place / name for name in names], **given)


@pytest.fixture(scope="module")
def found(place):
    return select(place, *POLICIES, checkpoints=True)


def named(found):
    return {row["name"]: row for row in found["candidates"]}


def test_every_run_and_every_kept_checkpoint_is_a_candidate(found):
    # The checkpoint of the last update is the policy of the run itself.
    assert set(named(found)) == {name for run in POLICIES for name in (run, f"{run} @ 10")}


@pytest.mark.parametrize("name", ["bold", "shy"])
def test_evaluations_of_a_run_find_the_same_return_under_the_belief(place, found, name):
    run = phyb.open_run(place / name, cache=place / "cache", console=QUIET)
    settings = dataclasses.replace(SETTINGS, training=dataclasses.replace(SETTINGS.training, fit_steps=200))
    job = job_of(run.files, run.log, settings=settings)
    during = evaluate_in_training(job, run.policy, run.problem, 10)
    last = final_evaluation(job, run.policy, run.problem)
    selected = named(found)[name]["estimates"]["belief_return"]["mean"]
    assert during["belief_return"] == pytest.approx(selected, abs=1e-4)
    assert last["belief_return"] == pytest.approx(selected, abs=1e-4)
    assert (last["mean_return"], last["belief_is_lower_bound"]) == (None, None)  # there is no simulator


def test_estimates_are_what_the_world_pays(found):
    for name, row in named(found).items():
        action = EARLY if "@" in name else POLICIES[name]
        belief, plain, fitted = (row["estimates"][estimate] for estimate in ESTIMATES)
        assert belief["mean"] == pytest.approx(5 * (action - 0.5), abs=1e-4)
        assert plain["mean"] == pytest.approx(5 * (action - 0.25), abs=4 * plain["std_error"])
        assert fitted["mean"] == pytest.approx(5 * (action - 0.25), abs=0.4)
        assert row["real_return"] == pytest.approx(5 * (action - 0.25))


def test_identical_candidates_get_identical_estimates(found):
    rows = named(found)
    assert rows["bold"]["estimates"] == rows["twin"]["estimates"]
    assert rows["bold @ 10"]["estimates"] == rows["shy @ 10"]["estimates"]


def test_better_policies_rank_higher_and_agree_with_reality(found):
    rows, order = named(found), ("bold", "calm", "calm @ 10", "shy")
    for name in ESTIMATES:
        assert [rows[who]["estimates"][name]["rank"] for who in order] == [1, 3, 4, 8]
        assert found["rank_correlation"][name] == pytest.approx(1.0)
        shy = rows["shy"]["estimates"][name]
        assert shy["behind_best"] > 2.0 * shy["behind_best_std_error"]
    assert [rows[who]["real_rank"] for who in order] == [1, 3, 4, 8]
    assert [row["name"] for row in found["candidates"]][:3] == ["bold", "twin", "calm"]
    assert "All estimates put bold and twin first." in found["advice"]


def test_the_protocol_is_reported(place, found):
    protocol = found["protocol"]
    assert protocol["run"] == str(place / "bold")
    assert (protocol["discount"], protocol["horizon"], protocol["termination"]) == (0.8, 5, "none")
    assert protocol["trained_on_pool"] == list(POLICIES)
    assert protocol["fit"]["fit_steps"] == 600


def test_the_command_prints_the_ranking_and_writes_strict_json(place, tmp_path, capsys):
    out = tmp_path / "ranking.json"
    options = "--fit-steps 600 --fit-networks 2 --fit-hidden 32 --fit-batch-size 64 --fit-learning-rate 3e-3"
    arguments = [*options.split(), "--fit-target-rate", "0.05", "--episodes", "200", "--cache", str(place / "cache")]
    runs = [str(place / name) for name in ("shy", "bold")]
    main(["select", *runs, "--pool-of", str(place / "calm"), "--out", str(out), *arguments])
    shown = capsys.readouterr().out
    assert "All estimates put bold first." in shown
    assert "rank correlation over 2 candidates means little" in shown
    content = json.loads(out.read_text(), parse_constant=pytest.fail)
    assert [row["name"] for row in content["candidates"]] == ["bold", "shy"]
    with pytest.raises(SystemExit):
        main(["select", *runs, "--out", str(out)])
    assert "already exists" in capsys.readouterr().err


def test_runs_on_different_logs_are_refused(place, tmp_path):
    other = shutil.copytree(place / "bold", tmp_path / "other")
    config = json.loads((other / "config.json").read_text())
    config["data"]["fingerprint"] = "0" * 64
    RunFolder(other).save_json("config.json", config)
    with pytest.raises(UsageError, match="different logs") as refused:
        phyb.select_policies([place / "bold", other], console=QUIET)
    assert "000000000000" in str(refused.value)
    with pytest.raises(UsageError, match="different logs"):
        phyb.select_policies([place / "bold"], pool_of=other, console=QUIET)
    with pytest.raises(DataError, match=r"not the log that .*expected 000000000000.*--data"):
        phyb.select_policies([other], console=QUIET)


def test_a_log_that_moved_is_asked_for(place, tmp_path):
    lost = shutil.copytree(place / "bold", tmp_path / "lost")
    config = json.loads((lost / "config.json").read_text())
    assert config["data"]["provenance"]["path"] == str(place / "halving.npz")
    config["data"]["provenance"]["path"] = str(tmp_path / "gone.npz")
    RunFolder(lost).save_json("config.json", config)
    with pytest.raises(DataError, match=r"gone\.npz.*--data FILE"):
        phyb.select_policies([lost], console=QUIET)
    del config["data"]["provenance"]["path"]
    RunFolder(lost).save_json("config.json", config)
    with pytest.raises(UsageError, match="--data FILE"):
        phyb.select_policies([lost], console=QUIET)
    with pytest.raises(DataError, match="the log given: is not the log"):
        phyb.select_policies([lost], data=halving(3), console=QUIET)


def test_what_is_not_finished_cannot_be_ranked(place, tmp_path):
    half = shutil.copytree(place / "bold", tmp_path / "half")
    (half / "result.json").unlink()
    with pytest.raises(UsageError, match="not a finished run"):
        phyb.select_policies([half], console=QUIET)
    with pytest.raises(UsageError, match="at least one run"):
        phyb.select_policies([], console=QUIET)


def test_a_run_without_models_is_ranked_but_cannot_judge(place, tmp_path):
    cloned = shutil.copytree(place / "shy", tmp_path / "cloned")
    config = json.loads((cloned / "config.json").read_text())
    config |= {"algorithm": "bc", "settings": {"pool": None, "training": config["settings"]["training"]}}
    RunFolder(cloned).save_json("config.json", config)
    with pytest.raises(UsageError, match=r"learned no models.*--pool-of"):
        phyb.select_policies([place / "bold"], pool_of=cloned, console=QUIET)
    given = {"fit": FIT, "episodes": 200, "cache": place / "cache", "console": QUIET}
    found = phyb.select_policies([cloned, place / "bold"], **given)
    assert [row["name"] for row in found["candidates"]] == ["bold", "cloned"]
    assert found["protocol"]["run"] == str(place / "bold")
    assert found["protocol"]["trained_on_pool"] == ["bold"]


def test_a_pool_that_is_gone_is_trained_again_after_telling(place, tmp_path, monkeypatch):
    class Reached(Exception):
        pass

    shown = io.StringIO()

    def train_again(*_, **__):
        assert "is not in the cache" in shown.getvalue()
        raise Reached

    monkeypatch.setattr("phyb.dynamics.cache.fit_pool", train_again)
    with pytest.raises(Reached):
        select(place, "bold", cache=tmp_path / "empty", console=Console(file=shown, width=300))
    assert "2 models are trained again" in shown.getvalue()


def test_the_average_of_the_models_keeps_all_and_weighs_them_alike():
    plain = average_of_models(BeliefConfig(ensemble_size=7, subset_size=2, uniform_mix=0.3))
    assert (plain.subset_size, plain.weight_rule, plain.uniform_mix) == (7, "uniform", 0.0)


def test_equal_values_share_a_rank():
    assert ranks([1.0, 3.0, None, 3.0, 2.0]) == [4, 1, None, 1, 3]


def test_the_standard_error_adds_what_starts_and_fits_contribute():
    starts, fits = np.array([[1.0, 2.0, 4.0, 9.0]]), np.array([[0.0], [6.0]])
    of_starts, of_fits = np.std(starts, ddof=1) / 2.0, np.std(fits, ddof=1) / 2.0**0.5
    assert std_error(starts) == pytest.approx(of_starts)
    assert std_error(fits) == pytest.approx(of_fits)
    assert std_error(starts + fits) == pytest.approx(np.hypot(of_starts, of_fits))
    assert np.isnan(std_error(np.ones((1, 1))))
