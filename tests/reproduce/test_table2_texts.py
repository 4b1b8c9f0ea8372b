"""The table as text, from made-up results."""

import csv
import io
import json

import pytest
from made_up import comparison

from phyb.reproduce import tables
from phyb.storage.files import json_bytes


def test_cells_say_what_the_runs_say():
    phyb, cql, bc, optimum, behaviour = tables.cells(comparison())
    assert phyb[:4] == ["PhyB", "4", "101.0 ± 0.8", "101.6 ± 3.7"]
    assert phyb[4].startswith("101.0 [100.")
    assert phyb[5:] == ["31.5", "–", "3.0 (pool 1.0)"]
    assert cql[:4] == ["CQL", "4", "92.0 ± 6.1", "89.4 ± 1.3"]
    assert cql[4].startswith("89.5 [")  # of 4 runs the lowest and the highest are left out
    assert cql[6].startswith("0.88 [")  # PhyB wins 13 of 16 pairs and ties in 2
    assert cql[7] == "2.0"
    assert bc[:5] == ["BC", "4", "0.0 ± 0.0", "–", "0.0 [0.0, 0.0]"]
    assert bc[6] == "1.00 [1.00, 1.00]"
    assert optimum[:4] == ["exact optimum", "–", "101.8", "–"]
    assert behaviour[2] == "73.3"
    assert float(optimum[5]) == pytest.approx(33.7, abs=1.5)
    assert float(behaviour[5]) == pytest.approx(26.1, abs=1.5)


def test_one_seed_has_no_deviation_and_no_interval():
    phyb, cql, *_ = tables.cells(comparison(seeds=1, phyb=(101.0,), cql=(90.0,)))
    assert phyb[2] == "101.0"
    assert (cql[4], cql[6]) == ("90.0", "1.00")


def test_an_algorithm_without_runs_keeps_its_row_and_is_named():
    found = comparison(phyb=(101.0, 101.0), rambo=())
    assert tables.cells(found)[1] == ["RAMBO", "0", "–", "99.6 ± 0.6", "–", "–", "–", "–"]
    assert "Not all of the 4 seeds are finished: PhyB, RAMBO." in tables.markdown(found)


def test_markdown_is_a_table_with_as_many_columns_everywhere():
    lines = tables.markdown(comparison()).splitlines()
    rows = [line for line in lines if line.startswith("|")]
    assert lines[0] == "**Table 2, liquidation: 4 seeds**"
    assert rows[0].startswith("| algorithm | seeds | score, ours | score, paper |")
    assert {line.count("|") for line in rows} == {9}
    assert len(rows) == 2 + 3 + 2


def test_latex_escapes_and_balances():
    text = tables.latex(comparison(phyb=(101.0, 102.0), td3bc=(99.0, 98.0)))
    assert r"TD3+BC & 2 & 98.5 $\pm$ 0.7 & 100.4 $\pm$ 3.6 &" in text
    assert r"CVaR 10 \%" in text
    assert text.count("{") == text.count("}")
    assert r"\begin{tabular}{lrrrrrrr}" in text
    rows = [line for line in text.splitlines() if line.endswith(r"\\")]
    assert {line.count(" & ") for line in rows} == {7}
    assert all(ord(letter) < 128 for letter in text)


@pytest.mark.parametrize(
    ("plain", "escaped"),
    [
        ("50 % & more_", r"50 \% \& more\_"),
        ("\\x{$}", r"\textbackslash{}x\{\$\}"),
        ("a~b^c#", r"a\textasciitilde{}b\textasciicircum{}c\#"),
        ("1 ± 2 –", r"1 $\pm$ 2 --"),
    ],
)
def test_latex_letters(plain, escaped):
    assert tables.escape_latex(plain) == escaped


def test_csv_keeps_every_number():
    found = comparison()
    lines = list(csv.DictReader(io.StringIO(tables.comma_separated(found))))
    assert [line["algorithm"] for line in lines] == ["phyb", "cql", "bc", "", ""]
    for line, row in zip(lines, found.rows, strict=False):
        assert float(line["score_mean"]) == row.mean
        assert row.iqm is not None
        assert float(line["iqm_high"]) == row.iqm.high
        assert (line["paper_mean"] == "") is (row.paper is None)
    assert lines[0]["phyb_better"] == ""
    assert float(lines[1]["phyb_better"]) == 14 / 16


def test_data_is_strict_json_with_every_run_and_its_command():
    found = comparison(seeds=1, phyb=(101.0,), cql=(90.0,))
    content = json.loads(json_bytes(tables.data(found, "phyb reproduce table2")), parse_constant=pytest.fail)
    assert [run["score"] for run in content["runs"]] == [101.0, 90.0]
    assert content["runs"][1]["command"].startswith("phyb train liquidation --algorithm cql")
    assert content["rows"][0]["paper"] == {"mean": 101.6, "std": 3.7}
    assert content["rows"][1]["iqm"] == {"value": 90.0, "low": None, "high": None}
    assert not content["rough"]


def test_rough_numbers_are_called_so_everywhere():
    found = comparison(rough=True)
    assert "ROUGH" in tables.title(found)
    for text in (tables.markdown(found), tables.latex(found)):
        assert "score, rough" in text
        assert tables.ROUGH.split(":")[0] in text
        assert "score, ours" not in text
    lines = list(csv.DictReader(io.StringIO(tables.comma_separated(found))))
    assert [line["rough"] for line in lines] == ["yes"] * 3 + ["no"] * 2
    assert tables.data(found, "")["rough"]
    assert tables.terminal(found).caption == tables.ROUGH


def test_intervals_hold_the_value():
    found = [estimate for row in comparison().rows for estimate in (row.iqm, row.phyb_better) if estimate is not None]
    assert len(found) == 5  # PhyB is not compared with itself
    for each in found:
        assert each.low is not None
        assert each.high is not None
        assert each.low <= each.value <= each.high
