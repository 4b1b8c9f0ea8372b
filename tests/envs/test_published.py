"""The paper's tables as data, and the formula behind their scores."""

import numpy as np
import pytest

from phyb.collection.logs import KINDS
from phyb.envs.published import Score, comparison, published_score
from phyb.envs.tasks import find_task, normalized_score

AVERAGES = {
    "EPQ": 85.4, "CQL": 73.7, "FQL": 36.9, "TD3+BC": 68.3, "DMG": 81.5, "MOReL": 65.1, "RAMBO": 68.0, "PMDB": 88.2,
    "ADM": 81.3, "PhyB": 91.0,
}  # fmt: skip


@pytest.mark.parametrize(
    ("dataset", "algorithm", "mean", "std"),
    [
        ("hopper-medium-replay", "PhyB", 110.7, 1.3),
        ("walker2d-medium", "PhyB", 95.5, 8.5),
        ("halfcheetah-random", "ADM", 45.4, 2.8),
        ("halfcheetah-expert", "FQL", 4.4, 1.2),
        ("walker2d-medium-expert", "RAMBO", 56.7, 39.0),
        ("hopper-full-replay", "TD3+BC", 85.9, 16.4),
        ("hopper-medium", "ORPO", 30.4, 37.4),
        ("liquidation", "PhyB", 101.6, 3.7),
        ("liquidation", "MOPO", 64.7, 21.8),
    ],
)
def test_scores_are_those_of_the_paper(dataset, algorithm, mean, std):
    assert published_score(dataset, algorithm) == Score(mean, std)


@pytest.mark.parametrize(("algorithm", "average"), [("ORPO", 67.5), ("1R2R", 67.8), ("MOBILE", 80.0)])
def test_columns_of_table_9_have_the_averages_the_paper_states(algorithm, average):
    kinds = ("random", "medium", "medium-replay", "medium-expert")
    scores = [
        published_score(f"{body}-{kind}", algorithm) for body in ("halfcheetah", "hopper", "walker2d") for kind in kinds
    ]
    assert np.mean([score.mean for score in scores if score is not None]) == pytest.approx(average, abs=0.06)


@pytest.mark.parametrize(("algorithm", "average"), AVERAGES.items())
def test_columns_have_the_averages_the_paper_states(algorithm, average):
    scores = [
        published_score(f"{body}-{kind}", algorithm) for body in ("halfcheetah", "hopper", "walker2d") for kind in KINDS
    ]
    assert np.mean([score.mean for score in scores if score is not None]) == pytest.approx(average, abs=0.06)
    assert len(scores) == 18


def test_logs_are_found_by_their_names_and_others_are_not():
    for name in ("hopper_medium_replay-v2", "hopper-medium-replay", "Hopper-Medium-Replay-v2"):
        found = comparison(name)
        assert found is not None
        assert found[0] == str(published_score("hopper-medium-replay"))
        assert "D4RL's hopper-medium-replay-v2" in found[1]
    for other in ("hopper-medium-v0", "my-hopper-medium", "hopper", "mujoco-hopper-medium-v0", ""):
        assert comparison(other) is None
    assert published_score("hopper-medium", "IQL") is None


def test_the_formula_is_that_of_d4rl_and_not_the_papers_slip():
    # The appendix has the expert's return twice in the formula; an expert would then score 0, a random policy -100.
    references = {
        "halfcheetah": (-280.18, 12135.0),
        "hopper": (-20.27, 3234.3),
        "walker2d": (1.63, 4592.3),
        "liquidation": (0.0, 135.0),
    }
    for name, (random, expert) in references.items():
        task = find_task(name)
        assert task is not None
        assert normalized_score(task, expert) == pytest.approx(100.0, abs=1e-3)
        assert normalized_score(task, random) == pytest.approx(0.0, abs=1e-3)
