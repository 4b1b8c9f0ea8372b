import dataclasses
import json

import pytest

from phyb.algorithms.registry import ALGORITHMS, load
from phyb.algorithms.settings import DATASETS, Settings, TrainingConfig, check_settings, preset
from phyb.belief.backup import BeliefConfig
from phyb.errors import DataError, UsageError
from phyb.fields import difference

EVERY_PRESET = [(algorithm, name) for algorithm in ALGORITHMS for name in load(algorithm).presets]


@pytest.mark.parametrize(("algorithm", "name"), EVERY_PRESET)
def test_settings_survive_json(algorithm, name):
    settings = preset(name, algorithm)
    assert Settings.from_json(json.loads(json.dumps(settings.to_json())), algorithm) == settings


@pytest.mark.parametrize(("algorithm", "name"), EVERY_PRESET)
def test_every_preset_can_be_used_on_every_dataset_it_knows(algorithm, name):
    for dataset in ("", *load(algorithm).datasets):
        settings = preset(name, algorithm, dataset=dataset)
        check_settings(settings, settings)


def test_every_algorithm_has_a_preset_for_two_cores_and_one_of_its_paper():
    for algorithm in ALGORITHMS:
        wanted = {"cpu"} if algorithm == "phyb-search" else {"cpu", "paper"}  # no paper has phyb-search
        assert wanted <= set(load(algorithm).presets)


def test_published_settings_are_for_data_sets_of_d4rl():
    assert all(set(load(algorithm).datasets) <= set(DATASETS) for algorithm in ALGORITHMS)


def test_a_data_set_chooses_what_was_published_for_it_and_names_its_task():
    settings = preset("paper", "mopo", dataset="hopper-medium-replay-v2")
    assert (settings.agent.uncertainty_weight, settings.agent.rollout_length) == (2.5, 5)
    assert preset("paper", "phyb", dataset="hopper-medium") == preset("paper", "phyb", "Hopper-v4")


def test_tasks_and_data_sets_that_are_not_known_are_refused():
    with pytest.raises(UsageError, match=r"--task hoper: is not known.*hopper"):
        preset("cpu", task="hoper")
    with pytest.raises(UsageError, match=r"--dataset hopper-best: is not known.*hopper-medium"):
        preset("paper", "mopo", dataset="hopper-best")


def test_settings_of_a_run_from_before_other_algorithms_are_phybs():
    old = preset("cpu").to_json()
    del old["agent"]["clone_steps"]
    assert Settings.from_json(old) == preset("cpu")


def test_a_file_cannot_name_code_to_run():
    with pytest.raises(DataError, match="expected one of phyb"):
        Settings.from_json({}, "os:system")


@pytest.mark.parametrize(
    ("word", "said"),
    [("cqll", "no such algorithm"), ("json:dumps", "not made from"), ("nowhere_at_all:X", "cannot import")],
)
def test_an_algorithm_that_does_not_exist_is_refused(word, said):
    with pytest.raises(UsageError, match=said):
        preset("cpu", word)


def test_paper_preset_holds_the_papers_table_of_hyper_parameters():
    paper = preset("paper")
    assert paper.pool is not None
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


def test_presets_differ_by_environment():
    locomotion, other = preset("cpu", task="Walker2d-v5"), preset("cpu")
    assert preset("cpu", task="phyb/Liquidation-v0") == other != locomotion
    assert preset("cpu", task="hopper") == locomotion
    check_settings(locomotion)
    search, cheetah = (preset("cpu", "phyb-search", task) for task in ("Walker2d-v5", "halfcheetah-v4"))
    assert cheetah.agent.episode_steps < search.agent.episode_steps  # it never falls
    assert cheetah.pool == search.pool == locomotion.pool
    assert locomotion.agent.return_steps > 0  # values of long horizons do not fill up by backups alone
    paper = preset("paper", task="Hopper-v5").pool
    assert paper is not None
    assert paper.model_hidden == (256,) * 4
    assert preset("paper", task="HalfCheetah-v5") == preset("paper")


OTHER_ON_TWO_CORES = {"clone_steps", "target_floor"}
"""In what two cores may differ from the paper all the same, and in what some do besides."""
TOO_SLOW_AS_PUBLISHED = {
    "adm": {"rollout_starts"},
    "fql": {"policy_hidden", "distillation", "normalize_values"},
    "epq": {"policy_hidden", "batch_size", "penalty_actions", "actor_learning_rate", "vae_hidden", "vae_learning_rate"}
    | {"behaviour_steps", "cluster_steps"},
    "morel": {"critics"},
    "mobile": {"inconsistency_samples"},
}


@pytest.mark.parametrize("name", sorted(set(ALGORITHMS) - {"phyb", "phyb-search", "pmdb"}))
def test_others_take_their_published_settings_on_walking_bodies_with_fewer_updates(name):
    cpu, paper = preset("cpu", name, "Walker2d-v5"), preset("paper", name)
    check_settings(cpu)
    assert cpu.training.steps < paper.training.steps
    kind = None if paper.pool is None else paper.pool.model
    if kind == "gaussian":
        assert cpu.pool == preset("cpu", "phyb", "Walker2d-v5").pool
    else:
        assert kind == (None if cpu.pool is None else cpu.pool.model)
    others = {name for name in OTHER_ON_TWO_CORES if hasattr(cpu.agent, name)} | TOO_SLOW_AS_PUBLISHED.get(name, set())
    same = {name: getattr(paper.agent, name) for name in others}
    assert dataclasses.replace(cpu.agent, **same) == paper.agent


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


@pytest.mark.parametrize(("name", "value"), [("subset_size", 11), ("subset_size", 0), ("wall_end", 0.5)])
def test_settings_that_make_no_sense_are_refused(name, value):
    with pytest.raises(ValueError, match=name):
        BeliefConfig(**{name: value})


@pytest.mark.parametrize(
    ("part", "change", "said"),
    [
        ("pool", {"pool_size": 0}, "pool_size: 0, must be 1 or more"),
        ("pool", {"holdout_fraction": 1.0}, "holdout_fraction: 1.0, must be between 0 and 1"),
        ("pool", {"model_hidden": (8, 0)}, "model_hidden"),
        ("agent", {"target_rate": 1.5}, "target_rate: 1.5, must be above 0 and at most 1"),
        ("agent", {"actor_learning_rate": float("nan")}, "actor_learning_rate: nan, must be above 0"),
        ("agent", {"belief": BeliefConfig(draw="distinct", ensemble_size=30)}, "only 20 models"),
        ("training", {"steps": 0}, "steps: 0"),
        ("training", {"discount": 1.5}, "discount: 1.5, must be above 0"),
        ("training", {"keep_checkpoints": 0}, "keep_checkpoints"),
    ],
)
def test_settings_no_run_could_use_are_refused_by_name(part, change, said):
    settings = preset("cpu")
    broken = dataclasses.replace(settings, **{part: dataclasses.replace(getattr(settings, part), **change)})
    with pytest.raises(UsageError, match=said):
        check_settings(broken)


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


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_names_of_settings_are_unique(algorithm):
    def names(config):
        for field in dataclasses.fields(config):
            value = getattr(config, field.name)
            yield from names(value) if dataclasses.is_dataclass(value) else [field.name]

    found = list(names(preset("cpu", algorithm)))
    assert len(found) == len(set(found))


def test_changes_by_name_reach_every_group():
    settings = preset("cpu").with_changes(pool_size=3, subset_size=2, policy_hidden=[8, 8], steps=7)
    assert settings.pool is not None
    assert (settings.pool.pool_size, settings.training.steps) == (3, 7)
    assert (settings.agent.belief.subset_size, settings.agent.policy_hidden) == (2, (8, 8))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"subset_sise": 3}, "subset_sise: there is no such setting. Close are subset_size"),
        ({"subset_size": "3"}, "subset_size: found '3', expected a whole number"),
        ({"subset_size": 11}, "subset_size must lie between 1 and ensemble_size"),
        ({"steps": 0}, "steps: 0, must be 1 or more"),
        ({"step_size": 0.3}, "step_size: 0.3, has no effect here: step_size_rule is target, not fixed"),
        ({"kth_min_rank": 3}, "kth_min_rank: 3, has no effect here: kth_min_probability is 0.0"),
        ({"prediction_memory": 1.0}, "prediction_memory: 1.0, has no effect here: real_target is logged, not belief"),
        ({"noise": "none", "noise_samples": 4}, "noise_samples: 4, has no effect here: noise is none"),
        ({"pool_size": 1, "rollback": True}, "rollback: True, has no effect here: pool_size is 1"),
    ],
)
def test_changes_that_cannot_be_made_or_change_nothing_are_refused(changes, said):
    with pytest.raises(UsageError, match=said):
        preset("cpu").with_changes(**changes)


def test_a_setting_has_its_effect_beside_another_one():
    agent = preset("cpu").with_changes(step_size_rule="fixed", step_size=0.3).agent
    assert (agent.step_size_rule, agent.step_size) == ("fixed", 0.3)


@pytest.mark.parametrize(("name", "value"), [("discount", 0.5), ("reward", "math:sqrt")])
def test_what_cloning_makes_no_use_of_is_refused(name, value):
    with pytest.raises(UsageError, match=f"{name}: {value}, has no effect here: the algorithm makes no use of it"):
        preset("cpu", "bc").with_changes(**{name: value})
    assert getattr(preset("cpu", "cql").with_changes(**{name: value}).training, name) == value


def test_settings_about_models_are_refused_where_there_are_none():
    with pytest.raises(UsageError, match="accept_poor_pool: True, has no effect here: there is no pool_size"):
        preset("cpu", "bc").with_changes(accept_poor_pool=True)
