"""The plan of runs: order, commands, shared pools."""

import dataclasses
from pathlib import Path

import pytest

from phyb.algorithms.registry import ALGORITHMS
from phyb.algorithms.settings import preset
from phyb.cli import parse
from phyb.errors import UsageError
from phyb.reproduce.plan import options_of, plan_runs
from phyb.reproduce.table import quick_changes
from phyb.reproduce.table2 import TABLE2

HERE = [name for name in TABLE2.rows if name in ALGORITHMS]


def test_seeds_follow_each_other_and_rows_keep_their_order():
    plan = plan_runs("liquidation", ["phyb", "bc"], range(2), Path("out"))
    assert [run.name for run in plan] == ["phyb-seed0", "bc-seed0", "phyb-seed1", "bc-seed1"]
    assert (
        plan[2].process_command[3:]
        == "train liquidation --algorithm phyb --seed 1 --out out/phyb-seed1 --resume".split()
    )
    assert plan[3].output == Path("out/bc-seed1.txt")


@pytest.mark.parametrize("changes", [None, quick_changes])
@pytest.mark.parametrize("name", HERE)
def test_the_command_line_arrives_at_the_settings_of_the_plan(name, changes):
    [run] = plan_runs("liquidation", [name], [3], Path("out"), changes, Path("pools"))
    command = parse(run.process_command[3:])
    pool = command.pool if run.settings.pool is not None else None
    assert (pool, command.agent, command.training) == tuple(vars(run.settings).values())
    assert (command.seed, command.resume, command.cache, command.out) == (3, True, Path("pools"), run.folder)


@pytest.mark.parametrize("name", HERE)
def test_quick_is_shorter_than_usual_for_every_algorithm(name):
    usual = preset("cpu", name, "liquidation")
    [quick] = plan_runs("liquidation", [name], [0], Path("out"), quick_changes)
    assert quick.settings.training.steps <= usual.training.steps // 5
    assert quick.settings.agent.policy_hidden == usual.agent.policy_hidden


def test_options_spell_numbers_lists_and_switches():
    changes = {"policy_hidden": (8, 9), "subset_size": 2, "accept_poor_pool": True}
    assert options_of(changes) == "--policy-hidden 8 9 --subset-size 2 --accept-poor-pool".split()
    assert options_of({"accept_poor_pool": False}) == ["--no-accept-poor-pool"]


def test_pools_are_shared_within_a_seed_and_by_equal_settings_only():
    first, other_seed = plan_runs("liquidation", ["phyb"], [0, 1], Path("out"))
    like_it = dataclasses.replace(first, algorithm="another", folder=Path("elsewhere"))
    smaller = dataclasses.replace(first, settings=first.settings.with_changes(pool_size=7))
    [without] = plan_runs("liquidation", ["bc"], [0], Path("out"))
    assert first.pool == like_it.pool
    assert len({first.pool, other_seed.pool, smaller.pool}) == 3
    assert without.pool is None


def test_an_algorithm_that_is_not_there_is_named_with_a_way_out():
    with pytest.raises(UsageError, match=r"the algorithm nobody\. Leave it out with: --algorithms phyb bc"):
        plan_runs("liquidation", ["phyb", "nobody", "bc"], [0], Path("out"))
