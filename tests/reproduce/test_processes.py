"""Many processes at a time: shares of cores, waiting for a pool, failures, stopping."""

import os

import pytest
from made_up import script

from phyb.errors import InterruptedRunError, UsageError
from phyb.interrupt import StopRequests
from phyb.reproduce.processes import next_run, run_all, share_cores

DONE = "import pathlib, sys; folder = pathlib.Path(sys.argv[1]); (folder / 'done').touch()"
WAIT = """
import pathlib, signal, sys, time
folder = pathlib.Path(sys.argv[1])
def save(*_):
    (folder / "saved").touch()
    sys.exit(130)
signal.signal(signal.SIGTERM, save)
(folder / "ready").touch()
time.sleep(60)
"""


class Record:
    """A monitor that remembers, and does something when it looks."""

    def __init__(self, at_update=None):
        self.events, self.most, self._at_update = [], 0, at_update

    def started(self, run):
        self.events.append(("started", run.planned.name))

    def ended(self, run, failed):
        self.events.append(("failed" if failed else "ended", run.planned.name))

    def update(self, active, waiting):
        self.most = max(self.most, len(active))
        if self._at_update is not None:
            self._at_update(active)


@pytest.mark.parametrize(
    ("jobs", "shares"),
    [
        (None, [(0,), (2,), (5,)]),
        (1, [(0, 2, 5)]),
        (2, [(0, 5), (2,)]),
        (4, [(0,), (2,), (5,), (0,)]),
    ],
)
def test_cores_are_shared_out(jobs, shares):
    assert share_cores(jobs, (0, 2, 5)) == shares


@pytest.mark.parametrize(("gigabytes", "jobs"), [(None, 4), (1, 1), (4, 2), (64, 4)])
def test_short_memory_means_fewer_at_a_time_unless_asked_otherwise(gigabytes, jobs):
    free = None if gigabytes is None else gigabytes * 2**30
    shares = share_cores(None, (0, 1, 2, 3), free)
    assert len(shares) == jobs
    assert sorted(core for share in shares for core in share) == [0, 1, 2, 3]
    assert len(share_cores(3, (0, 1, 2, 3), free)) == 3


def test_no_jobs_at_all_are_refused():
    with pytest.raises(UsageError, match="--jobs 0"):
        share_cores(0)


def test_a_run_waits_while_another_trains_its_pool_and_others_pass_it(tmp_path):
    first, second = (script(tmp_path / name, DONE, "a pool") for name in ("first", "second"))
    other, without = script(tmp_path / "other", DONE, "another pool"), script(tmp_path / "without", DONE)
    assert next_run([first, second], []) is first
    assert next_run([second, other], [first]) is other
    assert next_run([second, without], [first]) is without
    assert next_run([second], [first]) is None
    (first.folder / "diagnostics.json").touch()  # written once the pool is in the cache
    assert next_run([second], [first]) is second


def test_all_are_carried_out_so_many_at_a_time_on_their_cores(tmp_path):
    text = f"{DONE}; import os; print(sorted(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else '')"
    core = min(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0
    plan = [script(tmp_path / name, text) for name in "abc"]
    record = Record()
    assert run_all(plan, [(core,), (core,)], record, StopRequests(), poll_every=0.02) == []
    assert record.most == 2
    assert sorted(record.events) == sorted((word, name) for word in ("started", "ended") for name in "abc")
    if hasattr(os, "sched_getaffinity"):
        assert plan[0].output.read_text().strip() == f"[{core}]"


def test_a_failure_is_reported_with_its_last_words_and_stops_nobody(tmp_path):
    bad = script(tmp_path / "bad", "print('first'); print('', flush=True); raise SystemExit('it broke')")
    empty = script(tmp_path / "empty", "pass")  # ends well and leaves no result
    good = script(tmp_path / "good", DONE)
    record = Record()
    failed = run_all([bad, empty, good], [(0,)], record, StopRequests(), poll_every=0.02)
    assert [(each.planned.name, each.code, each.tail) for each in failed] == [
        ("bad", 1, "first\nit broke"),
        ("empty", 0, ""),
    ]
    assert record.events[-1] == ("ended", "good")


def test_a_request_to_stop_lets_processes_save_and_starts_no_more(tmp_path):
    stop = StopRequests()
    under_way, later = script(tmp_path / "now", WAIT), script(tmp_path / "later", DONE)

    def ask(active):
        stop.requested = (under_way.folder / "ready").exists()

    record = Record(ask)
    with pytest.raises(InterruptedRunError, match="same command"):
        run_all([under_way, later], [(0,)], record, stop, poll_every=0.02)
    assert (under_way.folder / "saved").exists()
    assert record.events == [("started", "now"), ("ended", "now")]


def test_no_process_is_left_behind_when_something_else_goes_wrong(tmp_path):
    seen = []

    def break_down(active):
        seen.append(active[0].process)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_all([script(tmp_path / "run", WAIT)], [(0,)], Record(break_down), StopRequests())
    assert seen[0].returncode is not None
