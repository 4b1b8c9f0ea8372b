"""An algorithm is a value made of settings."""

import pytest

from phyb.algorithms.bc import BC, BCConfig
from phyb.algorithms.mopo import MOPO
from phyb.algorithms.phyb import PhyB, PhyBConfig
from phyb.algorithms.settings import Settings, preset
from phyb.errors import UsageError


def test_settings_come_from_a_preset_and_single_changes():
    algorithm = PhyB(subset_size=3, steps=50_000)
    assert algorithm.settings == preset("cpu").with_changes(subset_size=3, steps=50_000)
    assert (algorithm.config, algorithm.total_steps) == (algorithm.settings.agent, 50_000)
    assert MOPO(task="hopper", preset="paper").settings == preset("paper", "mopo", "hopper")
    assert MOPO(dataset="hopper-medium", preset="paper").config.uncertainty_weight == 5.0


def test_settings_can_be_given_as_a_whole_or_for_the_algorithm_alone():
    config = PhyBConfig(rollouts=8)
    assert PhyB(config).settings == Settings(preset("cpu").pool, config, preset("cpu").training)
    settings = preset("paper")
    assert PhyB(settings).settings == settings
    assert PhyB(settings, steps=3).total_steps == 3


@pytest.mark.parametrize("settings", [BCConfig(), preset("cpu", "bc"), "paper"])
def test_settings_of_another_algorithm_are_refused(settings):
    with pytest.raises(UsageError, match="not of phyb"):
        PhyB(settings)


def test_equality_depends_on_what_compiled_code_depends_on():
    one, same = BC(steps=10), BC(steps=10, log_every=5)
    assert one == same
    assert hash(one) == hash(same)
    assert one != BC(steps=11)
    assert one != BC(steps=10, batch_size=7)


def test_a_task_chooses_the_preset_unless_the_algorithm_names_one():
    algorithm = PhyB(subset_size=1)
    hopper = preset("cpu", task="hopper").with_changes(subset_size=1)
    assert algorithm.for_task("Hopper-v5").settings == hopper
    assert algorithm.for_task(None).settings == algorithm.settings
    assert PhyB(task="hopper", subset_size=1).for_task("liquidation").settings == hopper
    assert PhyB(preset("cpu")).for_task("hopper").settings == preset("cpu")
    paper = MOPO(preset="paper").for_task("hopper", "hopper-medium")
    assert paper.settings == preset("paper", "mopo", dataset="hopper-medium")
