"""A policy as one file for other programs: standardisation, network, and scaling and clipping of actions inside.

No file is written before it has been compared with the policy itself.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float

from phyb.deploy import numpy_module, onnx_file
from phyb.errors import PhybError, UsageError
from phyb.policy.actor import BaseActor
from phyb.policy.computation import INPUT, Computation
from phyb.policy.policy import Policy
from phyb.policy.registry import ACTORS
from phyb.storage.files import write_bytes
from phyb.storage.mapped import column_range
from phyb.storage.store import digest
from phyb.training.folder import POLICY_FILES
from phyb.training.records import mapping, text
from phyb.training.run import Run, open_run

Format = Literal["onnx", "numpy"]
CHECKED_ROWS = 10_000
TOLERANCE = 1e-5
"""Largest difference that a file may show from the policy, where actions lie in [-1, 1]."""
_FORMATS: dict[Format, tuple[str, Callable[..., bytes], Callable[[bytes], Callable[[np.ndarray], np.ndarray]]]] = {
    "onnx": (".onnx", onnx_file.to_bytes, onnx_file.load),
    "numpy": (".py", numpy_module.to_bytes, numpy_module.load),
}


class Exported(NamedTuple):
    """A file that was written."""

    path: Path
    about: dict[str, Any]
    """What the file says about itself."""
    largest_difference: float
    """From the policy's actions, in units of half their range."""


def export(
    policy: Policy | Run | str | os.PathLike[str],
    path: str | os.PathLike[str],
    to: Format | None = None,
    *,
    tolerance: float = TOLERANCE,
) -> Exported:
    """Write a policy to one file that needs nothing of this library.

    The file is compared with the policy on 10,000 observations, half of them within the range of the log and half in a
    range twice as wide.

    Args:
        policy: a policy, a finished run, or its folder. A run also tells the file where it comes from.
        path: the file; an existing one is replaced.
        to: "onnx", an ONNX model from rows `observations` to rows `actions`; "numpy", a Python module with `act`. None
            goes by the suffix, .onnx or .py.
        tolerance: largest difference of actions, in half their range.

    Raises:
        UsageError: the kind of actor does not say what it computes, or the file would give other actions.
        MissingExtraError: ONNX is asked for, and phyb[onnx] is not installed.
        StorageError: the file cannot be written.
    """
    run = None if isinstance(policy, Policy) else policy if isinstance(policy, Run) else open_run(policy)
    deployed = run.policy if run is not None else policy
    assert isinstance(deployed, Policy)
    target = Path(path)
    suffix, to_bytes, load = _FORMATS[_format(target, to)]
    if target.suffix != suffix:
        raise UsageError(f"{target}: the name of such a file ends in {suffix}.")
    if suffix == ".py" and not target.stem.isidentifier():
        raise UsageError(f"{target}: {target.stem!r} cannot be imported; choose a name such as policy.py.")
    about = _about(deployed, run) | {"checked_on": CHECKED_ROWS, "tolerance": tolerance}
    content = to_bytes(describe(deployed), about, target.stem)
    difference = _difference(deployed, lambda rows: load(content)(rows), spread_observations(deployed, run))
    if not difference <= tolerance:
        raise UsageError(
            f"{target}: was not written. Its actions would differ from those of the policy by {difference:.2g} of half "
            f"their range, allowed is {tolerance:g}: `describe` of {type(deployed.actor).__name__} computes something "
            "else than its `mode`, or weights so large that the rounding of float32 shows (then raise the tolerance)."
        )
    write_bytes(target, content)
    return Exported(target, about, difference)


def describe(policy: Policy) -> Computation:
    """All that `policy.act` computes.

    Raises:
        UsageError: the kind of actor does not say what it computes.
    """
    _refuse_silent(type(policy.actor))
    computation = Computation(len(policy.standardizer.mean))
    standard = computation.standardize(policy.standardizer, INPUT)
    actions = policy.actor.describe(computation, standard)
    low, high = (np.asarray(bound) for bound in (policy.action_low, policy.action_high))
    half = computation.apply("multiply", computation.apply("add", actions, 1.0), 0.5 * (high - low))
    computation.clip(computation.apply("add", half, low), low, high)
    return computation


def spread_observations(policy: Policy, run: Run | None) -> Float[np.ndarray, "rows obs"]:
    """Observations to compare on: half within the range of the log, half in a range twice as wide.

    Without the log its range is taken to be four standard deviations to either side of the mean.
    """
    mean, scale = (np.asarray(part, np.float64) for part in (policy.standardizer.mean, policy.standardizer.scale))
    low, high = mean - 4.0 * scale, mean + 4.0 * scale
    if run is not None:
        with contextlib.suppress(PhybError):  # the log is no longer where the run found it
            low, high = (np.asarray(end, np.float64) for end in column_range(run.log.observations))
    middle, half = 0.5 * (low + high), np.maximum(0.5 * (high - low), 1e-3)
    reach = np.repeat([1.0, 2.0], CHECKED_ROWS // 2)[:, None]
    unit = np.random.default_rng(0).uniform(-1.0, 1.0, (CHECKED_ROWS, len(mean)))
    return (middle + reach * half * unit).astype(np.float32)


def _format(path: Path, to: Format | None) -> Format:
    if to is None:
        for name, (suffix, _, _) in _FORMATS.items():
            if path.suffix == suffix:
                return name
        raise UsageError(f"{path}: ends in neither .onnx nor .py; these are the files that can be written.")
    if to not in _FORMATS:
        raise UsageError(f"export: found to={to!r:.40}, expected one of {', '.join(_FORMATS)}.")
    return to


def _refuse_silent(kind: type[BaseActor]) -> None:
    """Refuse an actor that does not describe itself, or inherits the description of one that computes otherwise."""
    order = [each for each in kind.__mro__ if issubclass(each, BaseActor)]
    says = next(place for place, each in enumerate(order) if "describe" in vars(each))
    changed = [name for each in order[:says] for name in ("mode", "gaussian", "__call__") if name in vars(each)]
    if order[says] is BaseActor or changed:
        found = f"has its own {changed[0]} and" if changed and order[says] is not BaseActor else "is an actor that"
        raise UsageError(
            f"export: {ACTORS.word(kind)} {found} does not say in `describe` what it computes. Add the method, see "
            "docs/extending.md; then every format works."
        )


def _about(policy: Policy, run: Run | None) -> dict[str, Any]:
    """Bounds, names if they are known, and where the policy comes from."""
    config: Mapping[str, Any] = {} if run is None else run.config
    names = mapping(mapping(mapping(config.get("data")).get("provenance")).get("names"))
    folder = None if run is None else run.files
    return {
        "phyb_version": importlib.metadata.version("phyb"),
        "actor": ACTORS.word(type(policy.actor)),
        "observation_size": len(policy.standardizer.mean),
        "action_low": np.asarray(policy.action_low).tolist(),
        "action_high": np.asarray(policy.action_high).tolist(),
        "observation_names": names.get("observations"),
        "action_names": names.get("actions"),
        "algorithm": text(config.get("algorithm")) or None,
        "env_id": text(config.get("env_id")) or None,
        "config_sha256": None if folder is None else digest(folder.config)[1],
        "policy_sha256": None if folder is None else digest(folder.path / POLICY_FILES[1])[1],
    }


def _difference(
    policy: Policy, act: Callable[[np.ndarray], np.ndarray], observations: Float[np.ndarray, "rows obs"]
) -> float:
    """The largest difference of two policies' actions, in units of half their range."""
    wanted, half = policy.act(observations), 0.5 * np.asarray(policy.action_high - policy.action_low)
    try:
        found = np.asarray(act(observations))
    except PhybError:
        raise
    except Exception as error:  # whatever a description that does not fit makes numpy or the runtime say
        raise UsageError(
            f"export: what the actor describes cannot be computed ({type(error).__name__}: {error})."
        ) from error
    if found.shape != wanted.shape:
        raise UsageError(
            f"export: the actor describes actions of shape {found.shape[1:]}, expected {wanted.shape[1:]}."
        )
    return float(np.max(np.abs(found - wanted) / half))
