import dataclasses
import json

import pytest

from phyb.belief.backup import BeliefConfig
from phyb.errors import UsageError
from phyb.training.settings import Settings, TrainingConfig, check_settings, difference, preset


@pytest.mark.parametrize("name", ["cpu", "paper", "released"])
def test_settings_survive_json(name):
    settings = preset(name)
    assert Settings.from_json(json.loads(json.dumps(settings.to_json()))) == settings


def test_paper_preset_holds_the_papers_table_of_hyper_parameters():
    paper = preset("paper")
    assert paper.pool.pool_size == 100
    assert paper.pool.model_learning_rate == 1e-4
    assert set(paper.pool.model_hidden) == {512}
    assert paper.pool.model_batch_size == 512
    assert paper.agent.actor_learning_rate == 3e-5
    assert paper.agent.critic_learning_rate == 3e-4
    assert set(paper.agent.policy_hidden) == {256}
    assert (paper.agent.belief.ensemble_size, paper.agent.belief.subset_size) == (10, 5)
    assert paper.agent.belief.belief_temperature == 0.33
    assert paper.agent.belief.weight_rule == "softmax"
    assert (paper.agent.potential_mix, paper.agent.step_size, paper.agent.step_size_rule) == (
        0.9,
        0.1,
        "fixed",
    )
    assert (paper.agent.real_batch_size, paper.agent.rollout_length) == (256, 1000)
    assert (paper.training.steps, paper.training.discount) == (2_000_000, 0.99)


def test_released_preset_averages_states_and_mixes_in_the_kth_minimum():
    belief = preset("released").agent.belief
    assert (belief.successor, belief.kth_min_probability, belief.uniform_mix) == ("average", 0.1, 0.01)


def test_difference_names_each_setting_that_differs_and_nothing_else():
    ours = preset("cpu")
    theirs = dataclasses.replace(ours, agent=dataclasses.replace(ours.agent, potential_mix=0.5))
    assert difference(ours.to_json(), json.loads(json.dumps(ours.to_json()))) == []
    (line,) = difference(ours.to_json(), theirs.to_json())
    assert "agent.potential_mix" in line
    assert "0.5" in line


@pytest.mark.parametrize(("name", "value"), [("subset_size", 11), ("subset_size", 0), ("belief_temperature", 0.0)])
def test_settings_that_make_no_sense_are_refused(name, value):
    with pytest.raises(ValueError, match=name):
        BeliefConfig(**{name: value})


@pytest.mark.parametrize(
    ("part", "change", "said"),
    [
        ("pool", {"pool_size": 0}, "pool_size: 0, must be 1 or more"),
        ("pool", {"holdout_fraction": 1.0}, "holdout_fraction: 1.0, must lie between 0 and 1"),
        ("pool", {"model_hidden": (8, 0)}, "model_hidden"),
        ("agent", {"target_rate": 1.5}, "target_rate: 1.5, must be 1 or less"),
        ("agent", {"actor_learning_rate": float("nan")}, "actor_learning_rate: nan, must be above 0"),
        ("agent", {"belief": BeliefConfig(draw="distinct", ensemble_size=30)}, "only 20 models"),
        ("training", {"steps": 0}, "steps: 0"),
        ("training", {"discount": 1.5}, "discount: 1.5, must be 1 or less"),
        ("training", {"keep_checkpoints": 0}, "keep_checkpoints"),
    ],
)
def test_settings_no_run_could_use_are_refused_by_name(part, change, said):
    settings = preset("cpu")
    broken = dataclasses.replace(settings, **{part: dataclasses.replace(getattr(settings, part), **change)})
    with pytest.raises(UsageError, match=said):
        check_settings(broken)


@pytest.mark.parametrize("name", ["cpu", "paper", "released"])
def test_every_preset_can_be_used(name):
    check_settings(preset(name))


def test_all_faults_are_told_at_once():
    training = TrainingConfig(steps=0, log_every=-1)
    with pytest.raises(UsageError, match=r"steps: 0.*\n.*log_every: -1"):
        check_settings(Settings(training=training))


@pytest.mark.parametrize(
    "word", ["auto", "learned", "none", "hopper", "liquidation", "mine:rule", "my.own.module:rule"]
)
def test_termination_takes_words_known_rules_and_functions(word):
    assert TrainingConfig(termination=word).termination == word


@pytest.mark.parametrize("setting", ["termination", "reward"])
@pytest.mark.parametrize("word", ["hoper", "mine:", ":rule", "my-module:rule", "a:b:c", "../rules.py:f", ""])
def test_other_words_are_refused_by_the_name_of_the_setting(setting, word):
    with pytest.raises(ValueError, match=f"{setting}: found {word!r}"):
        TrainingConfig(**{setting: word})
