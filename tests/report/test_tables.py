import io

from rich.console import Console
from run_folders import diagnostics

from phyb.algorithms.registry import ALGORITHMS, Entry, load
from phyb.report.tables import (
    algorithm_table,
    evaluation_table,
    oracle_tables,
    pool_table,
    selection_table,
)
from phyb.training.result_table import result_table

RESULT = {
    "task": "liquidation", "algorithm": "phyb", "seed": 3, "mean_return": 136.0, "std_error": 0.4, "episodes": 20_000,
    "normalized_score": 100.74, "regret": 1.48, "cvar_10": 33.0, "optimal_return": 137.48, "behaviour_return": 98.9,
    "belief_return": 130.0, "belief_is_lower_bound": True, "wall_seconds": {"pool": 60.0, "policy": 200.0},
    "rules": {"sell at once": {"mean_return": 100.0, "normalized_score": 74.07}},
}  # fmt: skip


def shown(table) -> str:
    text = io.StringIO()
    Console(file=text, width=120).print(table)
    return text.getvalue()


def test_the_closing_table_has_every_number_beside_the_optimum():
    text = shown(result_table(RESULT))
    for part in ("101.84", "100.74", "136.00 ± 0.40", "1.48", "33.00", "98.90", "130.00", "lower bound: yes", "260 s"):
        assert part in text
    assert "sell at once" in text


def test_the_papers_score_stands_beside_a_log_of_the_same_name_with_a_caution():
    text = shown(result_table(RESULT | {"task": "hopper-medium-replay", "optimal_return": None}))
    assert "the paper's PhyB" in text
    assert "110.7 ± 1.3" in text
    assert "compare with care" in " ".join(text.split())
    assert "101.6 ± 3.7" in shown(result_table(RESULT))
    assert "the paper's CQL" in (text := shown(result_table(RESULT | {"algorithm": "cql"})))
    assert "89.4 ± 1.3" in text
    assert "paper" not in shown(result_table(RESULT | {"algorithm": "bc"}))
    assert "paper" not in shown(result_table(RESULT | {"task": "mine", "optimal_return": None}))
    assert "paper" not in shown(result_table(RESULT | {"normalized_score": None}))


def test_a_bound_that_does_not_hold_is_said_loudly():
    assert "NO" in shown(result_table(RESULT | {"belief_is_lower_bound": False}))


def test_without_a_simulator_only_the_belief_speaks():
    nothing = dict.fromkeys(("mean_return", "std_error", "episodes", "normalized_score", "regret", "cvar_10"))
    text = shown(result_table(RESULT | nothing | {"optimal_return": None, "belief_is_lower_bound": None, "rules": {}}))
    assert "no simulator" in text
    assert "this policy" not in text


def test_the_pool_is_shown_beside_the_trivial_prediction_with_its_verdict():
    text = shown(pool_table(diagnostics()))
    assert "20 models on 300 rows of 15 hold-out episodes" in text
    for row in (
        ("one step: error / trivial error", "0.32", "1.00"),
        ("one step: explained", "90.0 %", "0.0 %"),
        ("50 % interval", "47.0 % (47.0 % to 47.0 %)", "50 %"),
        ("error after 1 step ", "0.20", "trivial 0.50"),
        ("error after 20 steps", "0.60", "trivial –"),
        ("precision", "98.5 %"),
        ("recall", "–"),
    ):
        line = next(line for line in text.splitlines() if row[0] in line)
        assert all(part in line for part in row)
    assert "2 steps" not in text
    assert "raise --model-steps" in " ".join(text.split())
    assert "precision" not in shown(pool_table(diagnostics() | {"termination": None}))


def test_unknown_numbers_of_an_evaluation_are_dashes():
    found = {"env_id": "X-v0", "episodes": 1, "mean_return": 5.0, "cvar_10": 5.0, "min": 5.0, "max": 5.0}
    unknown = ("normalized_score", "normalized_interval_95", "interval_95", "std_error", "regret")
    text = shown(evaluation_table(found | dict.fromkeys(unknown)))
    assert "5.00" in text
    assert "–" in text
    known = found | dict.fromkeys(unknown) | {"interval_95": (4.25, 5.75)}
    assert "4.25 to 5.75" in shown(evaluation_table(known))


def selection(real, discount):
    def estimate(mean, rank):
        return {"mean": mean, "std_error": 0.25, "rank": rank}

    names = ("belief_return", "model_average", "fitted_q")
    row = {"name": "runs/[a]", "estimates": {name: estimate(5.0 + i, 1) for i, name in enumerate(names)}}
    known = {"real_return": 4.5 if real else None, "real_std_error": None, "real_rank": 1 if real else None}
    return {
        "candidates": [row | known],
        "protocol": {"discount": discount},
        "real_returns_known": int(real),
        "rank_correlation": dict.fromkeys(names, 0.75 if real else None),
    }


def test_the_ranking_shows_real_returns_only_where_they_are_known():
    text = shown(selection_table(selection(True, 0.99)))
    for part in ("runs/[a]", "5.00 ± 0.25", "6.00 ± 0.25", "7.00 ± 0.25", "4.50", "0.75", "discounted"):
        assert part in text
    text = shown(selection_table(selection(False, 1.0)))
    for part in ("real", "correlation", "discounted"):
        assert part not in text


def test_the_oracle_orders_policies_by_value():
    boundary, values = (shown(table) for table in oracle_tables(1.0))
    assert "1.923" in boundary
    assert values.index("optimal stopping") < values.index("wait to the end") < values.index("sell at once")


def test_every_algorithm_is_listed_with_its_family_and_the_models_it_learns(monkeypatch):
    monkeypatch.setitem(ALGORITHMS, "bc", Entry("Other", "learns a model alone", "", "", "model-based"))
    columns = [list(column.cells) for column in algorithm_table().columns]
    rows = {name: (family, models) for name, _, family, models, _ in zip(*columns, strict=True)}
    assert list(rows) == list(ALGORITHMS)
    assert rows["mopo"] == ("model-based", "yes, a pool")
    assert rows["cql"] == ("model-free", "no")
    assert rows["bc"] == ("model-based", "yes, its own")
    assert all(ALGORITHMS[name].family == "model-based" for name in rows if load(name).needs_pool)
