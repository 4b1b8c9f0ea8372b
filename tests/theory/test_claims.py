"""Every claim: the expected verdict is found, and the checker rejects a statement that is too strong."""

import dataclasses
import importlib.util
import io
import json
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console

from phyb.cli import main
from phyb.errors import DataError, UsageError
from phyb.theory import fixed_point
from phyb.theory.claims import CLAIMS, Measured
from phyb.theory.command import findings_table
from phyb.theory.pictures import write_picture
from phyb.theory.verify import check, rounded, verify

STRONGER = {
    "proposition-1": 0.5,
    "asymptotic": 0.5,
    "alpha-optimal": 0.5,
    "isotonicity": 0.99,
    "theorem-1-contraction": 0.99,
    "theorem-1-factor": 0.9,
    "theorem-1-uniqueness": 1.0,
    "theorem-1-bound": 0.9,
    "lower-bound": 1.0,
    "lower-bound-remark": 1.0,
    "model-error": 0.99,
    "theorem-2": 1.0,
    "monotone-k": 0.99,
    "monotone-n": 0.99,
    "theorem-4-contraction": 0.99,
    "theorem-4-formula": 0.5,
    "theorem-4-optimal": 0.99,
    "theorem-5": 0.99,
    "theorem-5-rate": 1.0,
    "mirror-approximation": 0.5,
}
"""How much stronger the statement is made: a wider condition, a tighter bound, a wrong formula."""
TRIALS = {"theorem-5": 5000, "theorem-1-uniqueness": 2000, "monotone-k": 1500, "theorem-5-rate": 50}


@pytest.mark.parametrize("name", list(STRONGER))
def test_a_planted_violation_is_seen(name):
    claim = CLAIMS[name]
    smallest = claim._replace(draws=claim.draws[:1], settings=claim.settings[:1])
    finding = check(smallest, TRIALS.get(name, 250), seed=1, flaw=STRONGER[name])
    assert not finding.agrees
    assert finding.counterexample is not None
    assert finding.counterexample["margin"] < 0


def test_every_claim_has_a_planted_violation_or_is_said_to_fail():
    assert {name for name, claim in CLAIMS.items() if claim.expected != "fails"} == set(STRONGER)
    for claim in CLAIMS.values():
        assert claim.statement
        assert (claim.expected == "holds only if") <= bool(claim.corrected)


@pytest.mark.parametrize("name", ["alpha-optimal", "theorem-1-bound", "proposition-1-values"])
def test_the_expected_verdict_is_found(name):
    finding = check(CLAIMS[name], 600, seed=3)
    assert finding.agrees
    assert finding.verdict == finding.expected
    assert sum(part.cases for part in finding.bins) == finding.trials


def test_the_same_seed_gives_the_same_numbers():
    first, second = (next(verify(["isotonicity"], trials=100, seed=7)) for _ in range(2))
    assert first.worst_margin == second.worst_margin
    assert first.counterexample == second.counterexample


def test_unknown_claims_are_refused():
    with pytest.raises(UsageError, match="Known claims: proposition-1"):
        verify(["theorem-9"])


def test_the_command_names_the_known_claims_and_shows_no_bar(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["verify", "--claim", "theorem-9"])
    assert stop.value.code == 2
    output = capsys.readouterr()
    assert "There is no claim 'theorem-9'. Known claims: proposition-1" in " ".join(output.err.split())
    assert "Checking" not in output.out + output.err


def test_rounding_keeps_distributions():
    case = {"models": np.array([[0.333, 0.333, 0.334]]), "temperature": np.float64(0.0123), "subset_size": np.int64(3)}
    found = rounded(case, 1)
    assert found["models"].sum() == pytest.approx(1.0)
    assert found["temperature"] == 0.01
    assert found["subset_size"] == 3


def test_cases_without_a_fixed_point_are_inconclusive(monkeypatch):
    """A solver that gives up at once must neither confirm a claim nor break it."""
    monkeypatch.setattr(fixed_point, "MOST_STEPS", 1)
    finding = check(CLAIMS["lower-bound-remark"], 100, seed=0)
    assert finding.inconclusive == 100
    assert finding.verdict == "inconclusive"
    assert finding.violations_inside == 0
    assert not finding.agrees


@pytest.mark.parametrize(("undecided", "verdict"), [(1, "holds"), (2, "inconclusive")])
def test_one_case_in_a_thousand_may_stay_open(undecided, verdict, monkeypatch):
    def measure(case, flaw):
        return Measured(jnp.where(case["number"] < undecided, jnp.nan, 1.0), True, True, case["number"])

    def draw(rng, count):
        return {"number": np.arange(count)}

    claim = CLAIMS["alpha-optimal"]._replace(draws=[draw], measure=measure)
    monkeypatch.setattr("phyb.theory.verify.CHUNK", 1000)
    finding = check(claim, 1000, seed=0)
    assert finding.verdict == verdict
    assert finding.inconclusive == undecided
    assert finding.inside == 1000 - undecided


@pytest.fixture(scope="module")
def findings():
    """One that holds, one with a condition of its own, one that fails; the worst names and numbers by hand."""
    found = [check(CLAIMS[name], 200, seed=0) for name in ("isotonicity", "theorem-1-bound", "proposition-1-values")]
    wide = found[0]
    longest = max((claim.corrected for claim in CLAIMS.values()), key=len)
    found.append(
        dataclasses.replace(
            wide,
            name="theorem-4-contraction",
            corrected=longest,
            verdict=f"holds only if {longest}",
            trials=10_000,
            inside=3586,
            violations_outside=6414,
            worst_margin=-7.11e-15,
        )
    )
    return found


@pytest.mark.parametrize("width", [80, 120])
def test_every_claim_has_its_numbers_on_one_line(findings, width):
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(findings_table(findings))
    lines = [line.rstrip() for line in console.export_text().splitlines()]
    assert max(map(len, lines)) <= width
    for finding in findings:
        line = next(line for line in lines if line.startswith(finding.name))
        assert f"{finding.trials:,}" in line
        assert line.endswith(("holds", "holds only if", "fails"))
    assert sum(line.startswith("  ") and line.strip()[:7] == "stated:" for line in lines) == len(findings)


def test_pictures_are_the_same_bytes_every_time(findings, tmp_path):
    for name in ("first", "second"):
        for finding in findings:
            write_picture(finding, tmp_path / name / f"{finding.name}.svg")
    for finding in findings:
        first, second = ((tmp_path / name / f"{finding.name}.svg").read_bytes() for name in ("first", "second"))
        assert first == second
        assert b"<dc:date>" not in first
        assert first.startswith(b"<?xml")


def test_the_page_in_the_docs_states_every_claim_as_the_code_does():
    docs = Path(__file__).parents[2] / "docs"
    text = (docs / "theory.md").read_text(encoding="utf-8")
    for name, claim in CLAIMS.items():
        section = text.split(f"\n## {name}\n")[1].split("\n## ")[0]
        assert " ".join(claim.statement.split("\n\n")[0].split()) in section
        assert f"Condition stated: {claim.condition}." in section
        expected = f"holds only if {claim.corrected}" if claim.expected == "holds only if" else claim.expected
        assert f"Verdict: **{expected}**" in section
        assert f"(img/theory/{name}.svg)" in section
        assert (docs / "img" / "theory" / f"{name}.svg").exists()


def test_numbers_of_a_run_go_into_the_page(findings):
    spec = importlib.util.spec_from_file_location("theory", Path(__file__).parents[2] / "benchmarks" / "theory.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    refreshed = module.refreshed
    finding = findings[0]
    page = (
        "All numbers below come from long ago; kept.\n\n|---|---|---|---|---|---|---|\n| stale |\n\n"
        "## isotonicity\n\nstale\n\n![stale](img/theory/isotonicity.svg)\n\nWritten by hand.\n"
    )
    text = refreshed(page, [finding], {"seed": 7, "trials": 200})
    assert "stale" not in text
    assert "long ago" not in text
    assert "seed 7 and 200 cases per claim; kept." in text
    assert f"| {finding.violations_inside:,} of {finding.inside:,} |" in text
    assert f"{finding.violations_inside:,} violations in {finding.inside:,} cases" in text
    assert text.endswith("Written by hand.\n")
    with pytest.raises(DataError, match="no place"):
        refreshed(page.replace("## isotonicity", "## other"), [finding], {"seed": 7, "trials": 200})


def test_the_command_writes_json_and_a_page(capsys, tmp_path):
    main(["verify", "--claim", "isotonicity", "--trials", "200", "--out", str(tmp_path)])
    assert "isotonicity" in capsys.readouterr().out
    content = json.loads((tmp_path / "verify.json").read_text())
    assert content["trials"] == 200
    assert content["claims"][0]["verdict"] == "holds"
    page = (tmp_path / "verify.html").read_text()
    assert "<svg" in page
    assert "<code>lambda &gt;= Delta_max</code>" in page
    assert "://" not in page
    assert (tmp_path / "figures" / "isotonicity.svg").exists()


def test_the_command_ends_with_1_if_a_claim_is_violated_where_it_should_hold(capsys, monkeypatch):
    claim = CLAIMS["isotonicity"]
    stronger = lambda case, flaw: claim.measure(case, 0.99)  # noqa: E731
    monkeypatch.setitem(CLAIMS, "isotonicity", claim._replace(measure=stronger))
    with pytest.raises(SystemExit) as stop:
        main(["verify", "--claim", "isotonicity", "--trials", "400"])
    assert stop.value.code == 1
    assert "violated where it should hold: isotonicity" in " ".join(capsys.readouterr().err.split())
