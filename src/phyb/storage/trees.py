"""Trees of arrays in one safetensors file, named by their place in the tree."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import safetensors
import safetensors.numpy

from phyb.errors import DataError
from phyb.storage.files import check_file, parse_json, write_bytes

Tree = TypeVar("Tree")


def save_tree(path: str | os.PathLike[str], tree: Any, about: Mapping[str, Any] | None = None) -> None:
    """Write every array of a tree to one safetensors file, named by its place in the tree, with a note `about` it.

    The same content gives the same bytes, which is why the note is one JSON text: the order of several entries of
    a safetensors header is random.
    """
    flat = {name: _to_numpy(leaf) for name, leaf in _named_leaves(tree)}
    note = json.dumps(dict(about or {}), sort_keys=True)
    write_bytes(path, safetensors.numpy.save(flat, metadata={"about": note}))


def load_tree(path: str | os.PathLike[str], like: Tree, part: str = "") -> Tree:
    """Read a file of `save_tree` back into the shape of `like` (arrays or `jax.ShapeDtypeStruct`s).

    With `part`, a place such as "[0]", `like` is what stands at that place of the saved tree; the rest is left alone. A
    file that is damaged or holds other arrays is a `DataError`.
    """
    flat = {name[len(part) :]: array for name, array in load_arrays(path).items() if name.startswith(part)}
    named = _named_leaves(like)
    wanted, found = {name for name, _ in named}, set(flat)
    if wanted != found:
        missing, surplus = ([f"{name:.80}" for name in sorted(names)[:3]] for names in (wanted - found, found - wanted))
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
    check_file(path)
    try:
        return safetensors.numpy.load_file(path)
    except Exception as error:  # the library lets through what NumPy says about types and shapes it does not know
        raise DataError(f"{path}: is damaged or not a safetensors file ({error}).") from error


def read_about(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The note that `save_tree` wrote into a file, without reading its arrays."""
    check_file(path)
    try:
        with safetensors.safe_open(path, "numpy") as file:
            note = parse_json((file.metadata() or {})["about"])
    except (safetensors.SafetensorError, OSError, KeyError, ValueError) as error:
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
