"""The work behind `phyb reproduce`: plan, train what is missing, gather, write."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from phyb.errors import PhybError, UsageError
from phyb.interrupt import stop_requests
from phyb.reproduce import tables
from phyb.reproduce.board import Board
from phyb.reproduce.plan import Planned, plan_runs
from phyb.reproduce.processes import Failed, run_all, share_cores
from phyb.reproduce.registry import TABLES
from phyb.reproduce.table import Comparison, Table, compare, outcome_of
from phyb.storage.files import write_bytes, write_json
from phyb.training.memory import available


class FailedRunsError(PhybError):
    """Some runs of a table failed; the table was written without them."""

    exit_code = 1


def reproduce(
    table: str | Table,
    *,
    seeds: int | None = None,
    quick: bool = False,
    out: Path | None = None,
    jobs: int | None = None,
    algorithms: Sequence[str] = (),
    gather: bool = False,
    cache: Path | None = None,
    console: Console | None = None,
) -> Comparison:
    """Make a table, training the missing runs. What the arguments mean is said by `phyb reproduce --help`.

    Raises:
        UsageError: an algorithm is not known, or a run in the folder was made with other settings.
        FailedRunsError: runs failed; everything else is finished and the table is written without them.
        InterruptedRunError: Ctrl-C or SIGTERM; every run has saved.
    """
    console = console or Console()
    table = TABLES.find(table) if isinstance(table, str) else table
    count = seeds if seeds is not None else 1 if quick else table.seeds
    if count < 1:
        raise UsageError(f"--seeds {count}: at least 1 is needed.")
    folder = out if out is not None else Path("runs") / (f"{table.name}-quick" if quick else table.name)
    chosen = list(dict.fromkeys(algorithms)) or list(table.rows)
    plan = plan_runs(table.task, chosen, range(count), folder, table.quick if quick else None, cache)
    shares = share_cores(jobs, free_bytes=available())
    done = [run for run in plan if run.finished]
    failed: list[Failed] = []
    if not gather and len(done) < len(plan):
        failed = _train(plan, done, shares, console)
        done = [run for run in plan if run.finished]
    if not done and not failed:
        raise UsageError(f"{folder}: no run of the table is finished yet. Leave out --gather to train them.")
    found = compare(table, [outcome_of(run) for run in done], chosen, seeds=count, jobs=len(shares), rough=quick)
    paths = write(found, folder, _command(table, count, quick, algorithms))
    console.print(tables.terminal(found))
    for path in paths:
        console.print(f"Written: {path}", highlight=False, soft_wrap=True)
    if failed:
        raise FailedRunsError(
            f"{len(failed)} of {len(plan)} runs failed: {', '.join(run.planned.name for run in failed)}. Their output "
            f"is in {folder}/RUN.txt. The table has the others; the same command tries these again."
        )
    return found


def write(found: Comparison, folder: Path, command: str) -> list[Path]:
    """Write the tables, the data and the figure into the folder."""
    texts = {"md": tables.markdown(found), "tex": tables.latex(found), "csv": tables.comma_separated(found)}
    *paths, data, svg, png = (folder / f"{found.table.name}.{ending}" for ending in (*texts, "json", "svg", "png"))
    for path, text in zip(paths, texts.values(), strict=True):
        write_bytes(path, text.encode())
    write_json(data, tables.data(found, command))
    tables.draw(found, [svg, png])
    return [*paths, data, svg, png]


def _train(
    plan: Sequence[Planned], done: Sequence[Planned], shares: Sequence[tuple[int, ...]], console: Console
) -> list[Failed]:
    missing = [run for run in plan if run not in done]
    cores = len({core for share in shares for core in share})
    console.print(
        f"{len(done)} of {len(plan)} runs are finished. Training {len(missing)}, {len(shares)} at a time on {cores} "
        f"core{'s' if cores != 1 else ''}, into {missing[0].folder.parent}. Ctrl-C saves; the same command goes on.",
        highlight=False,
        soft_wrap=True,
    )
    kill_runs = signal.default_int_handler  # an exception: the runs must not outlive this process
    with Board(console, plan, done, len(shares)) as board, stop_requests(board.message, second=kill_runs) as stop:
        return run_all(missing, shares, board, stop)


def _command(table: Table, seeds: int, quick: bool, algorithms: Sequence[str]) -> str:
    words = [f"phyb reproduce {table.name}", f"--seeds {seeds}", *(["--quick"] if quick else [])]
    return " ".join([*words, *(["--algorithms", *algorithms] if algorithms else [])])
