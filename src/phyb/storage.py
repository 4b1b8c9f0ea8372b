"""Writing and reading trees of arrays and JSON: atomic, checked, and unable to run code."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import safetensors
import safetensors.numpy

from phyb.errors import DataError

Tree = TypeVar("Tree")


@contextlib.contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary file beside `path` that takes its name only when the block ends well and the bytes are on disk.

    Raises:
        DataError: the folder cannot be made or written to.
    """
    target = Path(path)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent)
    except OSError as error:
        raise DataError(f"{path}: cannot be written ({error}). Check folder, rights and free space.") from error
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.chmod(0o644)
        os.replace(temporary, target)
        with contextlib.suppress(OSError):  # not every file system can sync a folder
            folder = os.open(target.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
    finally:
        temporary.unlink(missing_ok=True)


def write_json(path: str | os.PathLike[str], content: Any) -> None:
    """Write strict JSON (no NaN) in one piece."""
    with atomic_path(path) as temporary:
        temporary.write_text(json.dumps(content, indent=2, allow_nan=False, default=_plain) + "\n", encoding="utf-8")


def read_json(path: str | os.PathLike[str]) -> Any:
    """Read JSON; a missing or damaged file gives a `DataError` that names it."""
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise DataError(f"{path}: there is no such file.") from error
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise DataError(f"{path}: cannot be read as JSON ({error}). Restore it, or delete it and run again.") from error


def save_tree(path: str | os.PathLike[str], tree: Any, about: Mapping[str, Any] | None = None) -> None:
    """Write every array of a tree to one safetensors file, named by its place in the tree, with a note `about` it.

    The same content gives the same bytes, which is why the note is one JSON text: the order of several entries of
    a safetensors header is random.
    """
    flat = {name: _to_numpy(leaf) for name, leaf in _named_leaves(tree)}
    with atomic_path(path) as temporary:
        safetensors.numpy.save_file(flat, temporary, metadata={"about": json.dumps(dict(about or {}), sort_keys=True)})


def load_tree(path: str | os.PathLike[str], like: Tree) -> Tree:
    """Read a file of `save_tree` back into the shape of `like` (arrays or `jax.ShapeDtypeStruct`s).

    Raises:
        DataError: the file is missing, damaged, or holds other arrays than `like` asks for.
    """
    flat = load_arrays(path)
    named = _named_leaves(like)
    wanted, found = {name for name, _ in named}, set(flat)
    if wanted != found:
        missing, surplus = sorted(wanted - found)[:3], sorted(found - wanted)[:3]
        raise DataError(
            f"{path}: holds other arrays than these settings need (missing {missing}, unexpected {surplus}). "
            "It was written with other settings or by another version."
        )
    leaves = []
    for name, leaf in named:
        array = flat[name]
        is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        expected = jax.eval_shape(jax.random.key_data, leaf) if is_key else leaf
        if array.shape != expected.shape or array.dtype != np.dtype(expected.dtype):
            raise DataError(
                f"{path}: array {name} is {array.dtype}{array.shape}, expected {expected.dtype}{expected.shape}. "
                "It was written with other settings."
            )
        leaves.append(jax.random.wrap_key_data(jnp.asarray(array)) if is_key else jnp.asarray(array))
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def load_arrays(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """All arrays of a safetensors file by name; a missing or damaged file gives a `DataError`."""
    if not Path(path).is_file():
        raise DataError(f"{path}: there is no such file.")
    try:
        return safetensors.numpy.load_file(path)
    except (safetensors.SafetensorError, ValueError, KeyError, OSError) as error:
        raise DataError(f"{path}: is damaged or not a safetensors file ({error}).") from error


def read_about(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The note that `save_tree` wrote into a file, without reading its arrays."""
    try:
        with safetensors.safe_open(path, "numpy") as file:
            note = json.loads((file.metadata() or {})["about"])
    except (safetensors.SafetensorError, OSError, KeyError, ValueError, RecursionError) as error:
        raise DataError(f"{path}: is damaged or was not written by phyb ({error}).") from error
    if not isinstance(note, dict):
        raise DataError(f"{path}: was not written by phyb.")
    return note


def _named_leaves(tree: Any) -> list[tuple[str, Any]]:
    return [(jax.tree_util.keystr(path), leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(tree)]


def _to_numpy(leaf: Any) -> np.ndarray:
    if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    return np.asarray(leaf, order="C")  # unlike ascontiguousarray, this leaves a single number without an axis


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        return np.asarray(value).tolist()
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")
