"""The short version of kills.py: a run that is killed twice ends bit-identical to one that never was."""

from kills import Arena


def test_a_killed_run_ends_with_the_bits_of_an_unbroken_one(tmp_path):
    arena = Arena(tmp_path)
    arena.start("whole")
    calls = int(arena.run("whole").with_suffix(".calls").read_text())
    for call, how in ((calls // 4, "torn"), (calls // 3, "before")):
        assert arena.start("killed", "--call", str(call), "--how", how) != 0
    assert arena.start("killed") == 0
    assert arena.contents("killed") == arena.contents("whole")
