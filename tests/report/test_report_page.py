"""The page of a run: complete, honest about what is missing, self-contained, and safe against any name."""

import json
import re
from html.parser import HTMLParser
from typing import Any

import pytest
from run_folders import config, diagnostics, metrics, result, write_run

from phyb.errors import DataError
from phyb.report.page import write_report
from phyb.report.reading import SCRIPT

VOID = {"meta", "br", "img", "link", "input", "hr"}


class Outline(HTMLParser):
    """Checks that elements nest, and keeps what the tests ask about."""

    def __init__(self):
        super().__init__()
        self.open, self.tags, self.sections, self.headings, self.words = [], [], [], [], []
        self.attributes = []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag == "section" and dict(attrs).get("id"):
            self.sections.append(dict(attrs)["id"])
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("style", "script"):
            self.words.append(data)


def parse(page):
    outline = Outline()
    outline.feed(page)
    outline.close()
    assert outline.open == []
    return outline


def text_of(page):
    return " ".join(" ".join(parse(page).words).split())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "complete"
    return write_run(path, config=config(), result=result(), metrics=metrics(), diagnostics=diagnostics(), policy=True)


@pytest.fixture(scope="module")
def page(folder):
    path = write_report(folder)
    assert path == folder / "report.html"
    return path.read_text(encoding="utf-8")


def test_sections_stand_in_order_and_each_has_its_pictures(page):
    outline = parse(page)
    assert outline.sections == [
        "headline", "results", "learning", "belief", "values", "ranks", "policy", "pool", "disagreement", "rollouts",
        "training", "settings",
    ]  # fmt: skip
    counts = {part.split('"', 1)[0]: part.count("<svg ") for part in page.split("<main>")[1].split('<section id="')[1:]}
    assert counts == {
        "headline": 0, "results": 0, "learning": 2, "belief": 1, "values": 2, "ranks": 1, "policy": 1, "pool": 3,
        "disagreement": 1, "rollouts": 4, "training": 9, "settings": 0,
    }  # fmt: skip
    links = re.findall(r"<nav[^>]*>(.*?)</nav>", page)[0]
    assert re.findall(r'href="#(\w+)"', links) == outline.sections


def test_pictures_are_drawn_described_and_do_not_share_ids(page):
    pictures = re.findall(r"<svg .*?</svg>", page, flags=re.DOTALL)
    assert len(pictures) == 24
    for picture in pictures:
        assert re.match(r'<svg role="img" aria-label="[^"]{20,}" viewBox=', picture)
        assert len(re.findall(r"<(path|use|image)\b", picture)) > 5
        drawn = re.findall(r'(?:\bd|aria-label|transform|x|y)="([^"]*)"', picture)
        assert not any("nan" in each.split() or " nan" in each for each in drawn)
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    references = set(re.findall(r'(?:href="#|url\(#)([^")]+)', page))
    assert references <= set(ids)


def test_the_page_needs_no_network_and_runs_one_script(page):
    assert re.findall(r"<script>(.*?)</script", page, re.DOTALL) == [SCRIPT]
    assert page.count("<script") == 1
    assert not re.search(r"https?://|@import|//[a-z]+\.[a-z]", page)
    for name, value in parse(page).attributes:
        if name in ("src", "href", "xlink:href", "srcset", "data"):
            assert value.startswith(("#", "data:image/png;base64,"))
    assert all(value.startswith("#") for value in re.findall(r"url\(([^)]*)\)", page))
    assert 'name="viewport"' in page
    assert "prefers-color-scheme: dark" in page


def test_the_numbers_of_the_run_are_on_the_page(page):
    words = text_of(page)
    for number in ("101.17", "136.58", "0.41", "71.23", "137.48", "0.90", "98.87", "131.91", "5,000", "4 min 47 s"):
        assert number in words
    assert "131.91, is a lower bound" in words
    assert "in 11 of 11 evaluations" in words
    assert "has 60 % of the weight and is followed in 59 % of imagined steps; 3 of 4" in words
    assert "98.5 % of the foreseen ends happened" in words
    assert "The gap at the end, 4.00 ± 0.78, is pessimism; the largest gap on the way was 4.00." in words
    assert "Where they disagree most the error is 2.4 times that where they disagree least" in words
    assert "It was still improving: raise --model-steps." in words
    assert "the paper's PhyB 101.6 ± 3.7" in words
    for setting in ("potential_mix", "0.9125", "subset_size", "model_hidden", "64, 64", "agent · belief", "0.10.2"):
        assert setting in words
    assert "price" in words
    assert "observation 2" not in words


def test_the_same_run_gives_the_same_page(tmp_path):
    write_run(tmp_path, config=config(), metrics=metrics()[-4:], policy=True)
    first = write_report(tmp_path).read_bytes()
    assert b"<svg" in first
    assert write_report(tmp_path).read_bytes() == first


def test_a_run_without_a_simulator_is_evaluated_under_the_belief(tmp_path):
    unknown = ("normalized_score", "mean_return", "std_error", "cvar_10", "optimal_return", "regret", "episodes")
    found = result(**dict.fromkeys(unknown), belief_is_lower_bound=None, rules={}, task="plant")
    write_run(
        tmp_path,
        config=config(task="plant", env_id=None),
        result=found,
        metrics=metrics(simulator=False),
        diagnostics=diagnostics(observations=11),
    )
    page = write_report(tmp_path).read_text(encoding="utf-8")
    words = text_of(page)
    assert "No simulator was given" in words
    assert "Return under the belief 131.91" in words
    assert "is a lower bound" not in words
    assert 'id="policy"' not in page
    assert 'id="learning"' not in page
    assert "It went from 56.0 to 132.0" in words
    assert "Shown are the 6 outputs farthest from calibrated, of 11." in words
    assert "observation 7" in words
    assert "Mean return" not in words


def test_diagnostics_of_an_earlier_version_still_give_a_report(tmp_path):
    old = diagnostics() | {"format": 1}
    for later in ("doubt_bins", "training", "verdict"):
        del old[later]
    write_run(tmp_path, config=config(), diagnostics=old)
    page = write_report(tmp_path).read_text(encoding="utf-8")
    assert {"pool", "rollouts"} <= set(parse(page).sections)
    assert 'id="disagreement"' not in page


def test_a_belief_above_the_true_return_is_not_called_a_bound(tmp_path):
    write_run(tmp_path, result=result(belief_return=150.0, belief_is_lower_bound=False))
    words = text_of(write_report(tmp_path).read_text(encoding="utf-8"))
    assert "150.00, is not a lower bound" in words
    assert "Belief is a lower bound no" in words


def test_critics_are_held_against_episodes_under_the_belief(folder, tmp_path):
    assert "they agree" in text_of(write_report(folder).read_text(encoding="utf-8"))
    wrong = metrics()
    wrong[-1] = wrong[-1] | {"start_value": 83.0, "belief_discounted": 164.0}
    write_run(tmp_path, config=config(), result=result(), metrics=wrong, diagnostics=diagnostics())
    words = text_of(write_report(tmp_path).read_text(encoding="utf-8"))
    assert "is 83.0; the discounted return under the belief 164.0: the critics are 49% too low" in words
    assert "--critic-vote mean" in words
    other = config(settings={"agent": {"penalty_weight": 0.02}, "pool": {}, "training": {"steps": 4000}})
    write_run(tmp_path, config=other, result=result(), metrics=wrong, diagnostics=diagnostics())
    words = text_of(write_report(tmp_path).read_text(encoding="utf-8"))
    assert "49% too low" in words
    assert "--critic-vote" not in words, "advice names only what the algorithm has"


def test_a_policy_search_shows_whole_episodes_and_no_critics(tmp_path):
    whole = [
        line | {"episode_return": 3000.0 + line["step"], "doubt": 0.02} if line["stage"] == "policy" else line
        for line in metrics()
    ]
    agent = {"agent": {"judge": "episodes", "critic_vote": "least"}, "pool": {}, "training": {"steps": 4000}}
    write_run(tmp_path, config=config(settings=agent), result=result(), metrics=whole, diagnostics=diagnostics())
    words = text_of(write_report(tmp_path).read_text(encoding="utf-8"))
    assert "evaluates policies by whole episodes and learns no critics." in words
    assert "For every candidate policy some models" in words
    assert "Disagreement along imagined episodes" in words
    assert "the return of candidate policies, less the disagreement penalty, went from" in words
    assert "learned value of start states is" not in words
    assert "learned value of start states" not in words


@pytest.mark.parametrize(
    "content", [{"config": {}}, {"result": {}}, {"metrics": []}, {"config": {"task": "liquidation"}}]
)
def test_a_bare_run_folder_still_gives_a_page(tmp_path, content):
    write_run(tmp_path, **content)
    page = write_report(tmp_path).read_text(encoding="utf-8")
    assert parse(page).sections[0] == "headline"
    assert "has not been evaluated yet" in text_of(page)


def replaced(tree, leaf) -> Any:
    if isinstance(tree, dict):
        return {key: replaced(value, leaf) for key, value in tree.items()}
    if isinstance(tree, list):
        return [replaced(value, leaf) for value in tree]
    return leaf


@pytest.mark.parametrize("leaf", [None, "text", True, -1.0, 0, [], {}, float("nan"), 10**400], ids=str)
def test_leaves_of_any_kind_never_crash_the_report(tmp_path, leaf):
    short = metrics()[4:8] + metrics()[-3:]
    lines = [replaced(line, leaf) | {"stage": line["stage"], "step": line["step"]} for line in short]
    files = {"result": result(), "diagnostics": diagnostics()}
    write_run(tmp_path, config=config(), metrics=lines, **{name: replaced(x, leaf) for name, x in files.items()})
    parse(write_report(tmp_path).read_text(encoding="utf-8"))
    write_run(tmp_path, config=replaced(config(), leaf), result=replaced(result(), leaf), diagnostics={}, metrics=[])
    parse(write_report(tmp_path).read_text(encoding="utf-8"))


@pytest.mark.parametrize("whole", [None, [], "text", 3])
def test_files_of_another_shape_count_as_empty(tmp_path, whole):
    for name in ("config.json", "result.json", "diagnostics.json", "metrics.jsonl"):
        (tmp_path / name).write_text(json.dumps(whole))
    parse(write_report(tmp_path).read_text(encoding="utf-8"))


def test_names_cannot_inject_markup(tmp_path):
    evil = '<img src=x onerror="alert(1)">&\'$\\frac{$ 漢'
    settings = {evil: {evil: evil, "inner": {evil: [evil, None]}}}
    bins = diagnostics()
    bins["dimensions"] = [dimension | {"name": evil} for dimension in bins["dimensions"]]
    bins["rollouts"]["dimensions"] = [growth | {"name": evil} for growth in bins["rollouts"]["dimensions"]]
    write_run(
        tmp_path,
        config=config(task=evil, preset=evil, algorithm=evil, env_id=evil, settings=settings, versions={evil: evil}),
        result=result(rules={evil: {"mean_return": 1.0}}, wall_seconds={evil: 1.0}),
        diagnostics=bins,
    )
    page = write_report(tmp_path).read_text(encoding="utf-8")
    assert "<img" not in page
    outline = parse(page)
    assert "img" not in outline.tags
    assert not any(name.startswith("on") for name, _ in outline.attributes)
    assert evil in "".join(outline.words)


def test_a_cut_line_of_metrics_is_left_out_and_counted(tmp_path):
    write_run(tmp_path, config=config(), metrics=metrics()[-12:])
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"stage": "evaluation", "st')
    assert "could not be read and were left out: 1." in text_of(write_report(tmp_path).read_text(encoding="utf-8"))


def test_a_policy_of_another_size_or_a_missing_one_does_not_stop_the_report(tmp_path):
    write_run(tmp_path, config=config())
    assert "no readable policy" in text_of(write_report(tmp_path).read_text(encoding="utf-8"))


def test_what_is_not_a_run_is_refused(tmp_path):
    with pytest.raises(DataError, match="not a run folder"):
        write_report(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(DataError, match=r"config\.json"):
        write_report(tmp_path)
