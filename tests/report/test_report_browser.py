"""The page in a real browser: nothing is asked for, no complaints, everything fits and can be read off."""

import json
import re
from typing import Any

import numpy as np
import pytest
from browser import CHROMIUM, Browser
from run_folders import config, diagnostics, metrics, result, write_run

from phyb.report.comparison import write_comparison
from phyb.report.page import write_report
from phyb.report.reading import POLICY

pytestmark = [pytest.mark.browser, pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")]
EVIL = "<script>document.title = 'hacked'</script><img src=x onerror=\"document.title='hacked'\">"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    found = Browser(tmp_path_factory.mktemp("profile"))
    yield found
    found.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """A run whose names attack the page, and two such runs over each other."""
    folder = tmp_path_factory.mktemp("runs")
    name = folder / EVIL.replace("/", "|")
    made: Any = {"config": config(versions={EVIL: EVIL}), "result": result(rules={EVIL: {"mean_return": 1.0}})}
    write_run(name, metrics=metrics(), diagnostics=diagnostics(), policy=True, **made)
    few = [line for line in metrics() if line["stage"] == "evaluation"]
    write_run(folder / "two", metrics=few, **made)
    run, both = write_report(name), write_comparison(folder / "two", name, folder / "both.html")
    return {"run": run, "both": both}


@pytest.fixture(scope="module", params=["run", "both"])
def page(request, pages):
    return pages[request.param]


@pytest.mark.parametrize("width", [390, 1400])
def test_the_page_fits_and_is_silent(browser, page, width):
    browser.open(page, width, mobile=width == 390)
    assert browser.complaints == []
    assert all(url.startswith(("file://", "data:image/png")) for url in browser.requests)
    assert sum(url.startswith("file://") for url in browser.requests) == 1
    assert browser.run("document.title") != "hacked"
    assert browser.run("document.documentElement.scrollWidth") <= width
    figures = browser.run(
        "[...document.querySelectorAll('svg')].map(each => each.getBoundingClientRect())"
        ".map(box => [box.left, box.right, box.height])"
    )
    assert len(figures) > 8
    assert all(left >= 0 and right <= width and height > 100 and right - left > 200 for left, right, height in figures)
    assert page.stat().st_size < 1_500_000


def test_colours_follow_the_system(browser, page):
    def lightness(dark):
        browser.open(page, dark=dark)
        found = browser.run("['backgroundColor', 'color'].map(name => getComputedStyle(document.body)[name])")
        return [np.mean([int(part) for part in re.findall(r"\d+", color)[:3]]) for color in found]

    paper, ink = lightness(dark=False)
    assert paper > 230 > 60 > ink
    paper, ink = lightness(dark=True)
    assert paper < 40 < 200 < ink


def test_values_are_read_with_pointer_finger_and_keys(browser, page):
    browser.open(page)
    browser.run("document.querySelector('.plot').scrollIntoView()")
    plot = "document.querySelector('.plot')"
    curves = json.loads(browser.run(f"{plot}.dataset.curves"))
    label, _, steps, values = curves["curves"][0]
    left, top, width = browser.run(f"(box => [box.left, box.top, box.width])({plot}.getBoundingClientRect())")
    unit = width / browser.run(f"{plot}.querySelector('svg').viewBox.baseVal.width")
    place = left + unit * (curves["x"]["at"] + curves["x"]["per"] * steps[3])
    said = f"{plot}.querySelector('output').innerText"
    browser.move(place, top + 20)
    words = browser.run(said).replace(",", "")
    assert f"updates {steps[3]:g}" in words
    assert label in words
    assert f"{values[3]:.5g}" in words
    marked = browser.run(f"(box => [box.left + box.width / 2, box.top + box.height / 2])"
                         f"({plot}.querySelector('circle').getBoundingClientRect())")  # fmt: skip
    height = top + unit * (curves["y"]["at"] + curves["y"]["per"] * values[3])
    assert np.abs(np.array(marked) - [place, height]).max() < 1.0
    browser.move(1, 1)
    assert browser.run(f"{plot}.querySelector('output').hidden")
    browser.run(f"{plot}.focus()")
    for key, index in (("End", -1), ("ArrowLeft", -2), ("Home", 0), ("ArrowRight", 1)):
        browser.press(key)
        assert f"updates {steps[index]:g}" in browser.run(said).replace(",", "")
    browser.press("Escape")
    assert browser.run(f"{plot}.querySelector('output').hidden")
    browser.call("Input.dispatchTouchEvent", type="touchStart", touchPoints=[{"x": place, "y": top + 20}])
    browser.call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])
    assert f"updates {steps[3]:g}" in browser.run(said).replace(",", "")
    assert browser.complaints == []


def test_tables_scroll_inside_on_a_phone(browser, pages):
    browser.open(pages["run"], 390, mobile=True)
    inner = browser.run("[...document.querySelectorAll('.scroll')].map(each => [each.scrollWidth, each.clientWidth])")
    assert any(wide > narrow for wide, narrow in inner)
    assert browser.run("document.documentElement.scrollWidth") == 390


def test_the_policy_of_the_page_stops_scripts_and_requests(browser, pages, tmp_path):
    text = pages["run"].read_text(encoding="utf-8")
    assert f'content="{POLICY}"' in text
    broken = tmp_path / "broken.html"
    broken.write_text(text.replace("<main>", f"<main>{EVIL}<img src='https://example.invalid/x.png'>"))
    browser.open(broken)
    assert browser.run("document.title") != "hacked"
    assert any("Content Security Policy" in each for each in browser.complaints)
