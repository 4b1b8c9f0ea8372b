"""Every claim: what we say about it is borne out, and its checker sees a statement that is too strong."""

import json

import numpy as np
import pytest

from phyb.cli import main
from phyb.errors import UsageError
from phyb.theory.claims import CLAIMS
from phyb.theory.counterexample import rounded
from phyb.theory.verify import check, verify

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
MANY = {"theorem-5": 5000, "theorem-1-uniqueness": 2000, "monotone-k": 1500, "monotone-n": 500}


@pytest.mark.parametrize("name", list(STRONGER))
def test_a_planted_violation_is_seen(name):
    claim = CLAIMS[name]
    smallest = claim._replace(variants=lambda flaw: claim.variants(flaw)[:1])
    finding = check(smallest, MANY.get(name, 400), seed=1, flaw=STRONGER[name])
    assert not finding.agrees
    assert finding.counterexample is not None
    assert finding.counterexample["margin"] < 0


def test_every_claim_has_a_planted_violation_or_is_said_to_fail():
    assert {name for name, claim in CLAIMS.items() if claim.says != "fails"} == set(STRONGER)
    for claim in CLAIMS.values():
        assert claim.statement
        assert (claim.says == "holds only if") <= bool(claim.mended)


@pytest.mark.parametrize("name", ["alpha-optimal", "isotonicity", "theorem-1-bound", "proposition-1-values"])
def test_what_we_say_is_borne_out(name):
    finding = check(CLAIMS[name], 600, seed=3)
    assert finding.agrees
    assert finding.verdict == finding.says
    assert sum(cases for _, _, cases in finding.shares) == finding.trials


def test_the_same_seed_gives_the_same_numbers():
    first, second = (next(verify(["isotonicity"], trials=100, seed=7)) for _ in range(2))
    assert first.worst_margin == second.worst_margin
    assert first.counterexample == second.counterexample


def test_unknown_claims_are_refused():
    with pytest.raises(UsageError, match="Known claims: proposition-1"):
        list(verify(["theorem-9"]))


def test_rounding_keeps_distributions():
    case = {"models": np.array([[0.333, 0.333, 0.334]]), "temperature": np.float64(0.0123), "subset_size": np.int64(3)}
    found = rounded(case, 1)
    assert found["models"].sum() == pytest.approx(1.0)
    assert found["temperature"] == 0.01
    assert found["subset_size"] == 3


def test_the_command_writes_json_and_a_page(capsys, tmp_path):
    main(["verify", "--claim", "isotonicity", "--trials", "200", "--out", str(tmp_path)])
    assert "isotonicity" in capsys.readouterr().out
    content = json.loads((tmp_path / "verify.json").read_text())
    assert content["trials"] == 200
    assert content["claims"][0]["verdict"] == "holds"
    page = (tmp_path / "verify.html").read_text()
    assert "<svg" in page
    assert "http" not in page


def test_the_command_ends_with_1_if_a_claim_is_violated_where_we_say_it_holds(capsys, monkeypatch):
    claim = CLAIMS["isotonicity"]
    monkeypatch.setitem(CLAIMS, "isotonicity", claim._replace(variants=lambda _: claim.variants(0.99)))
    with pytest.raises(SystemExit) as stop:
        main(["verify", "--claim", "isotonicity", "--trials", "400"])
    assert stop.value.code == 1
    assert "violated where we say it holds: isotonicity" in " ".join(capsys.readouterr().err.split())
