import dataclasses
import json
import subprocess
import sys

import pytest

from phyb.algorithms.registry import ALGORITHMS
from phyb.algorithms.settings import preset
from phyb.cli import Train, main, parse
from phyb.data.collect import collect_liquidation
from phyb.data.files import save_log
from phyb.errors import UsageError

TINY = (
    "--pool-size 2 --model-hidden 8 --model-steps 20 --model-check-every 10 --ensemble-size 3 --subset-size 2 "
    "--policy-hidden 8 --real-batch-size 8 --rollouts 8 --clone-steps 5 --steps 20 --log-every 10 --evaluate-every 10 "
    "--checkpoint-every 10 --transitions 500 --evaluation-episodes 50 --final-episodes 60 --fit-steps 20 "
    "--accept-poor-pool"
).split()


def run(capsys, *arguments: str) -> tuple[int, str, str]:
    code = 0
    try:
        main(list(arguments))
    except SystemExit as stop:
        code = int(stop.code or 0)
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def log_file(folder, name, env_id=None, **provenance):
    log = collect_liquidation(50, 0)
    save_log(dataclasses.replace(log, env_id=env_id, provenance=provenance), folder / name)
    return str(folder / name)


@pytest.mark.parametrize(
    ("name", "recorded", "options", "task"),
    [
        ("mylog.hdf5", "Hopper-v5", [], "hopper"),
        ("mylog.npz", "HalfCheetah-v4", [], "halfcheetah-v4"),
        ("ant-colony.npz", None, [], None),
        ("hopper-medium.hdf5", "Unknown-v0", [], None),
        ("mylog.npz", "Hopper-v5", ["--env=Pendulum-v1"], "pendulum"),
        ("mylog.npz", None, ["--env", "Ant-v5"], "ant"),
        ("mylog.npz", "Hopper-v5", ["--env", "Ant-v5", "--task", "liquidation"], "liquidation"),
    ],
)
def test_defaults_come_from_task_simulator_or_log_and_never_from_a_file_name(tmp_path, name, recorded, options, task):
    # An option of the algorithm stands before DATA: its value is not taken for the log.
    words = ["train", "--subset-size", "2", log_file(tmp_path, name, recorded), *options]
    assert parse(words).settings == preset("cpu", task=task).with_changes(subset_size=2)


def test_published_settings_follow_what_the_log_records_or_the_option(tmp_path):
    words = ["train", log_file(tmp_path, "x.hdf5", "Hopper-v5", kind="medium-replay"), "--algorithm", "mopo"]
    assert parse([*words, "--preset=paper"]).settings == preset("paper", "mopo", dataset="hopper-medium-replay")
    words += ["--dataset", "hopper-medium"]
    assert parse([*words, "--preset=paper"]).settings == preset("paper", "mopo", dataset="hopper-medium")
    with pytest.raises(UsageError, match="only with --preset paper"):
        parse(words)


def test_a_setting_without_effect_is_refused_by_name():
    with pytest.raises(UsageError, match=r"step_size: 0\.3, has no effect here"):
        parse(["train", "liquidation", "--step-size", "0.3"])
    assert parse(["train", "liquidation", "--step-size-rule=fixed", "--step-size", "0.3"]).agent.step_size == 0.3


def test_defaults_come_from_the_preset_on_the_command_line():
    command = parse(["train", "liquidation", "--preset", "paper", "--subset-size", "3"])
    assert isinstance(command, Train)
    paper = preset("paper")
    assert command.pool == paper.pool
    assert command.agent.belief.subset_size == 3
    assert command.agent.potential_mix == paper.agent.potential_mix


def test_train_help_explains_every_setting(capsys):
    code, out, _ = run(capsys, "train", "--help")
    assert code == 0
    flags = {word.strip("│, ") for word in out.split() if word.startswith("--")}
    cpu = preset("cpu")
    assert cpu.pool is not None
    for part in (cpu.pool, cpu.agent, cpu.agent.belief, cpu.training):
        for name in part.__dataclass_fields__:
            if name != "belief":
                assert f"--{name.replace('_', '-')}" in flags
                documented = type(part).__doc__
                assert documented


def test_the_algorithm_on_the_command_line_decides_which_settings_there_are(capsys):
    command = parse(["train", "liquidation", "--algorithm=bc", "--batch-size", "7"])
    assert (command.agent.batch_size, command.training.steps) == (7, preset("cpu", "bc").training.steps)
    code, out, _ = run(capsys, "train", "--algorithm", "bc", "--help")
    assert code == 0
    assert "--batch-size" in out
    assert "--pool-size" not in out
    assert "--belief-temperature" not in out


def test_algorithms_lists_what_there_is(capsys):
    code, out, _ = run(capsys, "algorithms")
    assert code == 0
    assert all(name in out for name in ALGORITHMS)


HELP = [[], ["evaluate"], ["select"], ["report"], ["data"], ["data", "describe"], ["oracle"], ["verify"], ["reproduce"]]


@pytest.mark.parametrize("command", HELP)
def test_every_command_has_help(capsys, command):
    code, out, _ = run(capsys, *command, "--help")
    assert code == 0
    assert "usage: phyb" in out


def test_train_then_resume_evaluate_and_report(capsys, tmp_path):
    folder = str(tmp_path / "run")
    code, out, _ = run(capsys, "train", "liquidation", "--out", folder, *TINY)
    assert code == 0
    assert "exact optimum" in out
    assert "report.html" in out
    json.loads((tmp_path / "run" / "result.json").read_text(), parse_constant=pytest.fail)  # no NaN, no Infinity
    code, _, err = run(capsys, "train", "liquidation", "--out", folder, *TINY)
    assert code == 2
    assert "--resume" in err
    code, out, _ = run(capsys, "train", "liquidation", "--out", folder, "--resume", *TINY)
    assert code == 0
    assert "finished" in out
    code, out, _ = run(capsys, "evaluate", folder, "--episodes", "100")
    assert code == 0
    assert "CVaR" in out
    (tmp_path / "run" / "report.html").unlink()
    assert run(capsys, "report", folder)[0] == 0
    assert (tmp_path / "run" / "report.html").is_file()


def test_make_then_describe_a_log(capsys, tmp_path):
    file = tmp_path / "log.hdf5"
    assert run(capsys, "data", "make", "liquidation", "--transitions", "300", "--seed", "3", "--out", str(file))[0] == 0
    code, _, err = run(capsys, "data", "make", "liquidation", "--out", str(file))
    assert code == 2
    assert "already exists" in err
    code, out, _ = run(capsys, "data", "describe", str(file))
    assert code == 0
    assert "300" in out


def test_oracle_shows_the_optimum(capsys):
    code, out, _ = run(capsys, "oracle", "liquidation")
    assert code == 0
    assert "137.48" in out
    assert "wait to the end" in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["data", "describe", "nowhere.npz"], "nowhere.npz"),
        (["train", "nowhere.hdf5"], "nowhere.hdf5"),
        (["train", "liquidation", "--subset-size", "20"], "subset_size"),
        (["train", "liquidation", "--no-such-option", "1"], "no-such-option"),
        (["train", "liquidation", "--termination", "hoper"], "expected one of auto, learned, none, hopper"),
        (["train", "liquidation", "--algorithm", "cqll"], "no such algorithm"),
        (["train", "liquidation", "--algorithm", "bc", "--preset", "released"], "only the presets cpu, paper"),
        (["evaluate", "nowhere"], "not a run folder"),
        (["report", "nowhere"], "not a run folder"),
        (["select", "nowhere"], "not a run folder"),
        (["select", "nowhere", "--fit-steps", "0"], "fit_steps"),
    ],
)
def test_bad_requests_exit_with_2_and_a_message_without_traceback(capsys, tmp_path, monkeypatch, arguments, said):
    monkeypatch.chdir(tmp_path)
    code, out, err = run(capsys, *arguments)
    assert code == 2
    assert said in out + err
    assert "Traceback" not in out + err


def test_the_installed_command_works_as_a_process(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "phyb.cli", "data", "describe", str(tmp_path / "x.npz")],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert "x.npz" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("word", "new"),
    [
        ("--retreat", "--rollback"),
        ("--doubt-cost=1", "--disagreement-penalty"),
        ("--judge", "phyb-search"),
        ("--reward-units=log", "raw"),
    ],
)
def test_options_of_earlier_versions_are_refused_with_their_new_names(capsys, word, new):
    code, _, err = run(capsys, "train", "liquidation", word)
    assert code == 2
    assert new in err
