"""A whole run of phyb-search: from the command line to a result whose belief return has a value to rank models by."""

import json

import pytest

from phyb.cli import main
from phyb.errors import InterruptedRunError
from phyb.training import loop

TINY = (
    "train liquidation --algorithm phyb-search --pool-size 2 --model-hidden 8 --model-steps 20 --model-check-every 10 "
    "--ensemble-size 3 --subset-size 2 --policy-hidden 8 --policy-candidates 4 --policy-directions 3 "
    "--episode-starts 2 --clone-steps 5 --steps 20 --log-every 5 --evaluate-every 10 --checkpoint-every 10 "
    "--transitions 500 --evaluation-episodes 50 --final-episodes 60 --fit-steps 20 --accept-poor-pool"
).split()


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("PHYB_CACHE", str(tmp_path / "cache"))


def test_a_run_that_is_broken_off_ends_with_the_bytes_of_one_that_is_not(cache, tmp_path, monkeypatch):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    main([*TINY, "--out", str(whole)])
    calls = []

    def stop_late(self, total, work):
        calls.append(total)
        if len(calls) == 5:  # in the middle of a chunk, after the two calls of a fit
            work(2)
            raise InterruptedRunError("enough")
        work(total)

    with monkeypatch.context() as patch:
        patch.setattr(loop.Pieces, "run", stop_late)
        with pytest.raises(SystemExit):
            main([*TINY, "--out", str(broken)])
    assert not (broken / "result.json").exists()
    main([*TINY, "--out", str(broken), "--resume"])
    for name in ("metrics.jsonl", "policy/policy.safetensors"):
        assert (broken / name).read_bytes() == (whole / name).read_bytes(), name
    result = json.loads((whole / "result.json").read_text())
    assert result["algorithm"] == "phyb-search"
    assert result["belief_return"] is not None, "fitted Q evaluation ranks the models"
    lines = [json.loads(line) for line in (whole / "metrics.jsonl").read_text().splitlines()]
    assert all("belief_return" in line for line in lines if line["stage"] == "evaluation")
