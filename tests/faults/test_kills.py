"""The short version of kills.py: a run that is killed ends bit-identical to one that never was."""

import pytest
from kills import Arena


@pytest.mark.parametrize(("algorithm", "share", "how"), [("phyb", 4, "torn"), ("phyb-search", 2, "before")])
def test_a_killed_run_ends_with_the_bits_of_an_unbroken_one(tmp_path, algorithm, share, how):
    arena = Arena(tmp_path, algorithm)
    arena.start("whole")
    calls = int(arena.run("whole").with_suffix(".calls").read_text())
    assert arena.start("killed", "--call", str(calls // share), "--how", how) != 0
    assert arena.start("killed") == 0
    assert arena.contents("killed") == arena.contents("whole")
