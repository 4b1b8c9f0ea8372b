"""Every reader of files there is, with valid files to damage and the ways to damage them."""
# ruff: noqa: E402 - the example files live beside the tests of what they are examples of

import dataclasses
import json
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import jax
import jax.numpy as jnp
import numpy as np

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS / "data"), str(TESTS / "report")]

import fuzz_mutators as mutators
from log_examples import example_log, file_arrays  # pyright: ignore[reportMissingImports]
from run_folders import config, diagnostics, metrics, result, write_run  # pyright: ignore[reportMissingImports]

from phyb.algorithms.settings import Settings, preset
from phyb.data import load_log, save_log
from phyb.data.files import log_header
from phyb.networks import Standardizer
from phyb.policy.actor import Actor
from phyb.policy.policy import Policy, load_policy
from phyb.policy.vae import PerturbedDecoder
from phyb.storage.files import read_json
from phyb.storage.trees import load_arrays, load_tree, read_about, save_tree
from phyb.training.folder import RunFolder
from phyb.training.records import read_run

Damage = Callable[[random.Random, bytes], bytes]
Files = dict[str, bytes]


@dataclasses.dataclass(frozen=True)
class Reader:
    """A function that reads a folder, and what to put there: valid files, of which one is damaged."""

    name: str
    read: Callable[[Path], object]
    seeds: tuple[Files, ...]
    damage: dict[str, tuple[Damage, ...]]
    """By file, the ways to damage it."""
    weight: int = 1

    def input(self, rng: random.Random) -> Files:
        """Valid files, one of them damaged."""
        files = dict(rng.choice(self.seeds))
        name = rng.choice([name for name in self.damage if name in files])
        files[name] = rng.choice(self.damage[name])(rng, files[name])
        return files


def readers(scratch: Path) -> list[Reader]:
    """All readers; their valid files are made in the folder `scratch`."""
    blind, odd_json, odd_arrays = mutators.damaged, mutators.odd_json, mutators.odd_safetensors
    tree = {"weights": jnp.ones((3, 4)), "key": jax.random.key(0), "count": jnp.asarray(3), "none": jnp.zeros((0, 2))}
    like = jax.eval_shape(lambda: tree)
    save_tree(scratch / "tree.safetensors", tree, {"step": 7, "note": {"a": [1, 2.5, None]}})
    arrays = ({"tree.safetensors": (scratch / "tree.safetensors").read_bytes()},)
    actors = (Actor(jax.random.key(0), 3, 2, (8, 8)), PerturbedDecoder.of_sizes(3, 2, (8, 8), 4, (8,)))
    for actor in actors:
        policy = Policy(actor, Standardizer(jnp.zeros(3), jnp.ones(3)), -jnp.ones(2), jnp.ones(2))
        policy.save(scratch / type(actor).__name__)
    settings = tuple({"config.json": json.dumps(preset(name).to_json()).encode()} for name in ("cpu", "released"))
    parts = {"config": config(), "result": result(), "diagnostics": diagnostics(), "metrics": metrics()}
    run = _files(write_run(scratch / "run", **parts))
    json_files = dict.fromkeys(("config.json", "result.json", "diagnostics.json"), (blind, odd_json))
    digest = {"size": 3, "sha256": "0" * 64, "grows": False}
    manifest = {"format": 2, "written_by": "phyb", "files": {"config.json": digest, "policy/policy.json": digest}}
    return [
        Reader(
            "log.hdf5", lambda f: load_log(f / "log.hdf5"), _hdf5(scratch), {"log.hdf5": (blind, mutators.odd_hdf5)}, 3
        ),
        Reader("log header", lambda f: log_header(f / "log.hdf5"), _hdf5(scratch), {"log.hdf5": (mutators.odd_hdf5,)}),
        Reader("log.npz", _npz_log, _npz(scratch), {"log.npz": (blind, mutators.odd_npz)}, 2),
        Reader("read_json", lambda f: read_json(f / "config.json"), (run,), {"config.json": (blind, odd_json)}),
        Reader("settings", _settings, settings, {"config.json": (blind, odd_json, odd_json, odd_json)}, 2),
        Reader(
            "load_arrays",
            lambda f: load_arrays(f / "tree.safetensors"),
            arrays,
            {"tree.safetensors": (blind, odd_arrays)},
        ),
        Reader(
            "read_about",
            lambda f: read_about(f / "tree.safetensors"),
            arrays,
            {"tree.safetensors": (blind, odd_arrays)},
        ),
        Reader(
            "load_tree",
            lambda f: load_tree(f / "tree.safetensors", like),
            arrays,
            {"tree.safetensors": (blind, odd_arrays)},
        ),
        Reader(
            "load_policy",
            load_policy,
            tuple(_files(scratch / type(actor).__name__) for actor in actors),
            {"policy.json": (blind, odd_json), "policy.safetensors": (blind, odd_arrays)},
        ),
        Reader(
            "run folder",
            _run_folder,
            (run,),
            {**json_files, "metrics.jsonl": (blind, mutators.odd_json_lines, mutators.odd_json_lines)},
        ),
        Reader(
            "manifest",
            lambda f: [RunFolder(f).state(name) for name in RunFolder(f).entries],
            ({"manifest.json": json.dumps(manifest).encode(), "config.json": b"{}\n"},),
            {"manifest.json": (blind, odd_json, odd_json)},
        ),
    ]


def _npz_log(folder: Path) -> object:
    return log_header(folder / "log.npz"), load_log(folder / "log.npz")


def _settings(folder: Path) -> object:
    return Settings.from_json(read_json(folder / "config.json"))


def _run_folder(folder: Path) -> object:
    run = read_run(folder)
    return run.name, run.task, RunFolder(folder).read_config()


def _files(folder: Path) -> Files:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}


def _npz(scratch: Path) -> tuple[Files, ...]:
    found = []
    arrays = file_arrays(example_log())
    without = {name: array for name, array in arrays.items() if name != "next_observations"}
    for number, save in enumerate(
        (
            lambda path: save_log(example_log(), path),
            lambda path: np.savez(path, allow_pickle=False, **arrays, action_low=-1.0, action_high=1.0),
            lambda path: np.savez(path, allow_pickle=False, **without),
        )
    ):
        path = scratch / f"{number}.npz"
        save(path)
        found.append({"log.npz": path.read_bytes()})
    return tuple(found)


def _hdf5(scratch: Path) -> tuple[Files, ...]:
    """Old and new file versions; contiguous, compact, chunked and compressed data; attributes of many kinds."""
    arrays = file_arrays(example_log())
    layouts: tuple[dict[str, Any], ...] = (
        {},
        {"chunks": (7, 2), "maxshape": (None, 3)},
        {"compression": "gzip", "shuffle": True, "fletcher32": True},
        {"compression": "lzf"},
        {"compact": True},
    )
    found = []
    save_log(example_log(), scratch / "saved.hdf5")
    found.append({"log.hdf5": (scratch / "saved.hdf5").read_bytes()})
    for version in ("earliest", "latest"):
        for number, layout in enumerate(layouts):
            path = scratch / f"{version}{number}.hdf5"
            with h5py.File(path, "w", libver=version) as file:
                for name, array in arrays.items():
                    _create(file, name, array, **layout)
                file.attrs.update({"action_low": -np.ones(2), "action_high": np.ones(2), "env_id": "Example-v0"})
                file.attrs.update({"provenance": '{"seed": 0}', "flag": True, "count": 3, "names": ["a", "bc"]})
                file.attrs["table"] = np.array([(1, 2.0)], [("a", "i4"), ("b", "f4")])
                file.create_group("metadata/algorithm").attrs["gamma"] = 0.99
            found.append({"log.hdf5": path.read_bytes()})
    with h5py.File(scratch / "episodes.hdf5", "w") as file:
        for number in range(3):
            group = file.create_group(f"episode_{number}")
            group["observations"], group["actions"] = np.zeros((5, 3)), np.zeros((4, 2))
            group["rewards"], group["terminations"], group["truncations"] = np.zeros(4), np.zeros(4, bool), np.eye(4)[3]
    found.append({"log.hdf5": (scratch / "episodes.hdf5").read_bytes()})
    return tuple(found)


def _create(file: h5py.File, name: str, array: np.ndarray, compact: bool = False, **layout) -> None:
    if compact:
        plan = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plan.set_layout(h5py.h5d.COMPACT)
        kind = h5py.h5t.py_create(array.dtype, logical=True)
        space = h5py.h5s.create_simple(array.shape)
        h5py.h5d.create(file.id, name.encode(), kind, space, plan).write(h5py.h5s.ALL, h5py.h5s.ALL, array)
        return
    for key in ("chunks", "maxshape"):
        if key in layout:
            layout[key] = layout[key][: array.ndim]
            if array.ndim == 2:
                layout[key] = (layout[key][0], array.shape[1])
    file.create_dataset(name, data=array, **layout)
