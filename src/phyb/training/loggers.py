"""Loggers by name: the metrics of a run in TensorBoard, Weights & Biases or MLflow.

Each package is imported when it is asked for. What is logged are the numbers of metrics.jsonl, named "stage/name", the
settings, and at the end the numbers of result.json.
"""

from __future__ import annotations

import contextlib
import importlib
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, Protocol, get_args

from phyb.errors import DataError, MissingExtraError, UsageError
from phyb.storage.files import read_json
from phyb.training.loop import Callback

LoggerName = Literal["tensorboard", "wandb", "mlflow"]
_MODULES = {"tensorboard": "tensorboardX", "wandb": "wandb", "mlflow": "mlflow"}


class Tracker(Protocol):
    """Something that takes numbers."""

    def log(self, numbers: dict[str, float], step: int) -> None:
        """Keep the numbers of a step."""

    def close(self, numbers: dict[str, float], failed: bool) -> None:
        """Keep the numbers of the result, if there is one, and end."""


def check_logger(logger: LoggerName | Callback | None) -> None:
    """Refuse a logger that cannot be had, before anything is trained.

    Raises:
        UsageError: the name is not known.
        MissingExtraError: its package is not installed.
    """
    if logger is None or callable(logger):
        return
    if logger not in _MODULES:
        known = ", ".join(get_args(LoggerName))
        raise UsageError(
            f"logger: {logger!r:.40} is not known. Known are {known}, or give a function of step and metrics."
        )
    _module(logger)


@contextlib.contextmanager
def listening(
    logger: LoggerName | Callback | None, folder: Path, settings: Mapping[str, Any], tell: Callable[[str], None]
) -> Iterator[list[Callback]]:
    """The callbacks that a logger needs while the block runs.

    TensorBoard needs none: events are written into the run folder whenever its package is there.

    Args:
        logger: one of the names, a callback, or None.
        folder: the run folder; its name is that of the run.
        settings: what the run was started with.
        tell: hears, once, that a logger fails; a convenience does not end a run.
    """
    if logger is None or logger == "tensorboard":
        yield []
        return
    if callable(logger):
        yield [logger]
        return
    listener = _Listener(logger, folder, settings, tell)
    try:
        yield [listener]
    except BaseException:
        listener.close({}, failed=True)
        raise
    listener.close(_result(folder), failed=False)


class _Listener:
    """A callback that hands numbers to a tracker, until that fails."""

    def __init__(self, name: str, folder: Path, settings: Mapping[str, Any], tell: Callable[[str], None]) -> None:
        self._name, self._tell = name, tell
        self._tracker: Tracker | None = None
        with self._no_failure():
            self._tracker = _TRACKERS[name](_module(name), folder, settings)

    def __call__(self, step: int, metrics: Mapping[str, Any]) -> None:
        if self._tracker is not None:
            with self._no_failure():
                stage = metrics["stage"]
                self._tracker.log(_numbers({f"{stage}/{name}": value for name, value in metrics.items()}), step)

    def close(self, numbers: dict[str, float], failed: bool) -> None:
        """Hand over the numbers of the result, and end."""
        if self._tracker is not None:
            with self._no_failure():
                self._tracker.close(numbers, failed)

    @contextlib.contextmanager
    def _no_failure(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # whatever a service far away may raise
            self._tracker = None
            found = f"{type(error).__name__}: {error}"
            self._tell(f"The logger {self._name} failed and hears no more ({found}). The run goes on.")


class _WandB:
    """One run of Weights & Biases; parts of a resumed run are runs of one group."""

    def __init__(self, wandb: Any, folder: Path, settings: Mapping[str, Any]) -> None:
        name = folder.resolve().name
        self._run = wandb.init(project="phyb", name=name, group=name, config=dict(settings))

    def log(self, numbers: dict[str, float], step: int) -> None:
        self._run.log(numbers, step=step)

    def close(self, numbers: dict[str, float], failed: bool) -> None:
        self._run.summary.update(numbers)
        self._run.finish(exit_code=int(failed))


class _MLflow:
    """One run of MLflow, inside the one that is active, if any; where to is MLflow's own business."""

    def __init__(self, mlflow: Any, folder: Path, settings: Mapping[str, Any]) -> None:
        self._mlflow = mlflow
        mlflow.start_run(run_name=folder.resolve().name, nested=mlflow.active_run() is not None)
        mlflow.log_params(dict(settings))

    def log(self, numbers: dict[str, float], step: int) -> None:
        self._mlflow.log_metrics(numbers, step=step)

    def close(self, numbers: dict[str, float], failed: bool) -> None:
        self._mlflow.log_metrics(numbers)
        self._mlflow.end_run("FAILED" if failed else "FINISHED")


_TRACKERS: dict[str, Callable[[Any, Path, Mapping[str, Any]], Tracker]] = {"wandb": _WandB, "mlflow": _MLflow}


def _module(name: str) -> Any:
    try:
        return importlib.import_module(_MODULES[name])
    except ImportError as error:
        raise MissingExtraError(name, f"the logger {name}") from error


def _numbers(values: Mapping[str, Any]) -> dict[str, float]:
    """What is a finite number, and no flag."""
    return {
        name: value
        for name, value in values.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    }


def _result(folder: Path) -> dict[str, float]:
    try:
        found = read_json(folder / "result.json")
    except DataError:
        return {}
    return _numbers({f"result/{name}": value for name, value in found.items()}) if isinstance(found, dict) else {}
