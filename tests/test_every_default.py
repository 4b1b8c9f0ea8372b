"""Every algorithm as it is shipped, from the command line to a result: broken off once, resumed, and none the worse.

Here somebody asks to stop; `faults/test_kills.py` has runs that get SIGKILL.
"""

import dataclasses
import json

import pytest

from phyb.algorithms.registry import ALGORITHMS, load
from phyb.cli import main
from phyb.interrupt import StopRequests

SHORT = (
    "--transitions 512 --steps 8 --log-every 2 --checkpoint-every 2 --evaluate-every 8 --evaluation-episodes 20 "
    "--final-episodes 60"
).split()
POOL = (
    "--pool-size 2 --model-hidden 8 --model-steps 20 --model-check-every 10 --fit-steps 10 --accept-poor-pool".split()
)


def command(name, folder):
    """`phyb train` with the settings for two cores; only what would take minutes is shortened."""
    cloned = any(field.name == "clone_steps" for field in dataclasses.fields(load(name).config_class))
    few = [*SHORT, *(POOL if load(name).needs_pool else ()), *(("--clone-steps", "5") if cloned else ())]
    return ["train", "liquidation", "--algorithm", name, "--out", str(folder), *few]


def stop(arguments, folder, monkeypatch):
    """Run until the middle of the chunk after the first checkpoint, where somebody asks to stop."""
    check, asked = StopRequests.check, []

    def check_and_stop(self):
        asked.extend([True] * any((folder / "checkpoints").glob("*")))
        self.requested = len(asked) > 1
        check(self)

    with monkeypatch.context() as patch:
        patch.setattr(StopRequests, "check", check_and_stop)
        with pytest.raises(SystemExit) as ended:
            main(arguments)
    assert ended.value.code == 130


def contents(folder):
    result = json.loads((folder / "result.json").read_text())
    del result["wall_seconds"]
    return result, [(folder / name).read_bytes() for name in ("metrics.jsonl", "policy/policy.safetensors")]


@pytest.mark.parametrize("name", list(ALGORITHMS))
def test_a_run_that_was_broken_off_ends_with_the_bytes_of_an_unbroken_one(name, tmp_path, monkeypatch, capsys):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    stop(command(name, broken), broken, monkeypatch)
    assert not (broken / "result.json").exists()
    main([*command(name, broken), "--resume"])
    main(command(name, whole))
    result, files = contents(whole)
    assert contents(broken) == (result, files)
    assert (broken / "report.html").is_file()
    assert (result["algorithm"], result["preset"], result["steps"]) == (name, "cpu", 8)
    assert (result["belief_return"] is not None) is load(name).needs_pool
