"""Malformed files end in an error of ours: a short run of the fuzzer, and every fault it or its authors once found."""

import json
import os
import random
import socket
import struct

import fuzz
import fuzz_mutators as mutators
import h5py
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy
from fuzz_readers import readers
from hypothesis import HealthCheck, given
from hypothesis import settings as options
from hypothesis import strategies as st

from phyb.algorithms.settings import Settings
from phyb.data import load_log
from phyb.errors import DataError
from phyb.networks import Standardizer
from phyb.policy.actor import Actor
from phyb.policy.policy import Policy, load_policy
from phyb.storage.files import read_json, write_json
from phyb.storage.trees import load_arrays, load_tree, read_about
from phyb.training.folder import RunFolder
from phyb.training.records import read_run

NAMES = (
    *("log.hdf5", "log header", "log.npz", "read_json", "settings", "load_arrays", "read_about", "load_tree"),
    *("load_policy", "run folder", "manifest"),
)
COUNT = 40


@pytest.fixture(scope="module")
def known(tmp_path_factory):
    found = {reader.name: reader for reader in readers(tmp_path_factory.mktemp("seeds"))}
    assert tuple(found) == NAMES
    return found


@pytest.mark.parametrize("name", NAMES)
def test_damaged_files_are_read_or_refused(known, tmp_path, name):
    outcomes = list(fuzz.fuzz(known[name], 1, COUNT, tmp_path / "input", tmp_path / "faults"))
    assert [outcome.detail for outcome in outcomes if outcome.kind == "other"] == []
    assert max(outcome.memory for outcome in outcomes) < fuzz.MEBIBYTES
    assert any(outcome.kind == "refused" for outcome in outcomes)


@pytest.mark.parametrize("name", NAMES)
def test_the_undamaged_files_are_read(known, tmp_path, name):
    for files in known[name].seeds:
        assert fuzz.run_input(known[name], files, tmp_path / "input").kind == "accepted"


def test_inputs_depend_only_on_seed_reader_and_number(known, tmp_path):
    again = {reader.name: reader for reader in readers(tmp_path)}
    for name in ("log.npz", "settings"):
        one, other = ([fuzz.make_input(source[name], seed, 7) for seed in (3, 4)] for source in (known, again))
        assert one[0] == other[0]
        assert one[0] != one[1]


def test_a_fault_is_kept_with_its_cause(known, tmp_path):
    def broken(folder):
        raise RuntimeError("broken reader")

    reader = fuzz.Reader("broken", broken, known["settings"].seeds, known["settings"].damage)
    (outcome,) = fuzz.fuzz(reader, 0, 1, tmp_path / "input", tmp_path / "faults")
    assert outcome.kind == "other"
    assert "broken reader" in (tmp_path / "faults" / "broken-0-0" / "FAULT.txt").read_text()
    assert (tmp_path / "faults" / "broken-0-0" / "config.json").exists()


def test_the_checksum_of_forged_object_headers_is_that_of_the_library(tmp_path):
    with h5py.File(tmp_path / "x.hdf5", "w", libver="latest") as file:
        file["numbers"] = np.arange(3)
    content = (tmp_path / "x.hdf5").read_bytes()
    renewed = bytearray(content)
    for place in range(len(content)):
        if content[place : place + 4] == b"OHDR":
            mutators.renew_checksum(renewed, place)
    assert bytes(renewed) == content


# --- JSON ---


@pytest.mark.parametrize(
    "text",
    [
        "9" * 5000,
        '{"a": ' + "9" * 5000 + "}",
        "[" * 100_000,
        "[" * 200 + "]" * 200,
        '{"a":' * 200 + "1" + "}" * 200,
        '{"a": 1, "a": 2}',
        '"\\ud800"',
        '[{"\\udfff": 1}]',
        "\ufeff{}",
        " " * (8 * 2**20 + 1),
    ],
    ids=["digits", "digits inside", "open", "deep list", "deep object", "twice", "half", "half name", "mark", "large"],
)
def test_json_that_cannot_be_worked_with_is_refused(tmp_path, text):
    (tmp_path / "a.json").write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=r"a\.json: cannot be read as JSON"):
        read_json(tmp_path / "a.json")


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda x: st.lists(x) | st.dictionaries(st.text(), x),
    )
)
@options(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_json_is_settings_or_refused(content):
    try:
        Settings.from_json(content)
    except DataError:
        return
    assert isinstance(content, dict)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], "settings: found"),
        ({"pool": 3}, "pool: found 3, expected a group of settings"),
        ({"pool": {"pool_size": "many"}}, "pool.pool_size: found 'many', expected a whole number"),
        ({"pool": {"pool_size": True}}, "pool.pool_size: found True"),
        ({"pool": {"pool_size": 2.0}}, "pool.pool_size: found 2.0"),
        ({"pool": {"pool_size": 10**30}}, "pool.pool_size: found 1000"),
        ({"pool": {"model_hidden": 64}}, "pool.model_hidden: found 64, expected a list, each entry a whole number"),
        ({"pool": {"model_hidden": [64, "x"]}}, "pool.model_hidden: found"),
        (
            {"pool": {"model_learning_rate": float("nan")}},
            "pool.model_learning_rate: found nan, expected a finite number",
        ),
        ({"pool": {"model_learning_rate": 10**400}}, "pool.model_learning_rate: found 1000"),
        ({"training": {"discount": "x"}}, "training.discount: found 'x', expected a finite number or null"),
        ({"training": {"termination": "maybe"}}, "training: termination: found 'maybe', expected one of auto, learned"),
        ({"training": {"termination": ["auto"]}}, "training.termination: found"),
        ({"agent": {"belief": {"subset_size": 99}}}, "agent.belief: "),
        ({"agent": {"belief": {"colour": 1}}}, "agent.belief.colour: there is no such setting"),
        ({"__class__": {}}, "__class__: there is no such setting"),
        ({"to_json": 1}, "to_json: there is no such setting"),
    ],
)
def test_a_setting_of_the_wrong_kind_is_named(content, message):
    with pytest.raises(DataError) as error:
        Settings.from_json(content)
    assert str(error.value).startswith(message)


def test_whole_numbers_may_stand_for_decimal_ones():
    assert Settings.from_json({"training": {"discount": 1}}).training.discount == 1


def test_a_metrics_line_that_cannot_be_worked_with_is_counted_as_damaged(tmp_path):
    lines = ['{"stage": "policy", "step": 1}', '{"step": ' + "9" * 5000 + "}", "[" * 100_000, '{"step": "\\ud800"}']
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines))
    run = read_run(tmp_path)
    assert (len(run.stage("policy")), run.damaged_lines) == (1, 3)


def test_a_manifest_may_name_files_that_cannot_exist(tmp_path):
    entry = {"size": 3, "sha256": "0" * 64, "grows": False}
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    write_json(tmp_path / "manifest.json", {"format": 2, "files": dict.fromkeys(("x" * 1000, "loop"), entry)})
    folder = RunFolder(tmp_path)
    assert [folder.state(name) for name in folder.entries] == ["missing", "missing"]


# --- safetensors ---


def write_safetensors(path, header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


@pytest.mark.parametrize("dtype", ["F8_E4M3", "F8_E5M2", "F8_E8M0", "F4", "C64", "I128"])
def test_array_types_that_numpy_does_not_have_are_refused(tmp_path, dtype):
    bits = {"F4": 4, "C64": 64, "I128": 128}.get(dtype, 8)
    entry = {"dtype": dtype, "shape": [2], "data_offsets": [0, 2 * bits // 8]}
    path = write_safetensors(tmp_path / "a.safetensors", {"x": entry}, bytes(2 * bits // 8))
    with pytest.raises(DataError, match=r"a\.safetensors"):
        load_tree(path, {"x": jnp.zeros(2)})


@pytest.mark.parametrize("shape", [[2**62, 4], [2**64], [-1], [0, 2**62, 2**62]])
def test_shapes_beyond_all_memory_are_refused(tmp_path, shape):
    entry = {"dtype": "F32", "shape": shape, "data_offsets": [0, 0]}
    with pytest.raises(DataError, match=r"a\.safetensors"):
        load_tree(write_safetensors(tmp_path / "a.safetensors", {"x": entry}), {"x": jnp.zeros(2)})


@pytest.mark.parametrize("note", ["9" * 5000, "[" * 100_000, "[]", "3", "", '{"a": "\\ud800"}'])
def test_notes_that_cannot_be_worked_with_are_refused(tmp_path, note):
    safetensors.numpy.save_file({"x": np.zeros(2)}, tmp_path / "a", metadata={"about": note})
    with pytest.raises(DataError, match="not written by phyb"):
        read_about(tmp_path / "a")


def test_the_names_of_foreign_arrays_are_shortened(tmp_path):
    safetensors.numpy.save_file({"x" * 10_000: np.zeros(2)}, tmp_path / "a")
    with pytest.raises(DataError) as error:
        load_tree(tmp_path / "a", {"y": jnp.zeros(2)})
    assert len(str(error.value)) < 1000


# --- what is no file ---


@pytest.mark.parametrize("load", [read_json, load_arrays, read_about], ids=lambda load: load.__name__)
def test_what_is_no_file_is_refused_without_waiting(tmp_path, load):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "zero").symlink_to("/dev/zero")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    for name in ("pipe", "folder", "zero", "loop", "dangling", "nul\0inside", "x" * 300):
        with pytest.raises(DataError):
            load(tmp_path / name)


@pytest.mark.parametrize("suffix", [".npz", ".hdf5"])
def test_a_log_that_is_no_file_is_refused_without_waiting(tmp_path, suffix):
    os.mkfifo(tmp_path / f"pipe{suffix}")
    (tmp_path / f"zero{suffix}").symlink_to("/dev/zero")
    (tmp_path / f"loop{suffix}").symlink_to(tmp_path / f"loop{suffix}")
    for name in ("pipe", "zero", "loop", "nul\0inside", "x" * 300):
        with pytest.raises(DataError):
            load_log(tmp_path / f"{name}{suffix}")


def test_a_socket_is_no_policy(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the name of a socket must be short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("policy.json")
        with pytest.raises(DataError, match="no policy here"):
            load_policy(tmp_path)


# --- policies ---


@pytest.fixture
def policy(tmp_path):
    folder = tmp_path / "run" / "policy"
    actor = Actor(jnp.zeros(2, jnp.uint32), 3, 2, (4,))
    Policy(actor, Standardizer(jnp.zeros(3), jnp.ones(3)), -jnp.ones(2), jnp.ones(2)).save(folder)
    return folder


@pytest.mark.parametrize("name", ["policy.json", "policy.safetensors"])
def test_a_policy_is_not_read_through_a_link_out_of_its_folder(policy, tmp_path, name):
    os.replace(policy / name, tmp_path / "elsewhere")
    (policy / name).symlink_to(tmp_path / "elsewhere")
    for folder in (policy, policy.parent):
        with pytest.raises(DataError, match="is a link to a place outside of"):
            load_policy(folder)


def test_a_linked_policy_folder_is_refused_but_a_linked_run_is_not(policy, tmp_path):
    (tmp_path / "link").symlink_to(policy.parent)
    load_policy(tmp_path / "link")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "policy").symlink_to(policy)
    with pytest.raises(DataError, match="is a link to a place outside of"):
        load_policy(tmp_path / "other")


def test_a_link_inside_the_run_is_followed(policy):
    os.replace(policy / "policy.safetensors", policy.parent / "best.safetensors")
    (policy / "policy.safetensors").symlink_to("../best.safetensors")
    load_policy(policy.parent)
    with pytest.raises(DataError, match="is a link to a place outside of"):
        load_policy(policy)


@pytest.mark.parametrize("hidden", [[65_536] * 3, [1] * 1_000_000, [[]], [True]])
def test_forged_layer_sizes_take_neither_memory_nor_time(policy, hidden):
    about = json.loads((policy / "policy.json").read_text())
    (policy / "policy.json").write_text(json.dumps(about | {"hidden": hidden}))
    with pytest.raises(DataError, match="policy"):
        load_policy(policy)


# --- logs ---


@pytest.mark.parametrize(
    "provenance", ['{"attributes": 3, "assumed": "x"}', '{"attributes": [1], "assumed": null}', "[1]"]
)
def test_provenance_of_another_make_gives_way(known, tmp_path, provenance):
    for number, files in enumerate(known["log.hdf5"].seeds[1:3]):
        path = tmp_path / f"{number}.hdf5"
        path.write_bytes(files["log.hdf5"])
        with h5py.File(path, "r+") as file:
            file.attrs["provenance"] = provenance
            del file.attrs["action_low"], file.attrs["action_high"]
        log = load_log(path)
        assert log.provenance["attributes"]["count"] == 3
        assert "action_bounds" in log.provenance["assumed"]


@pytest.mark.parametrize("name", ["log.hdf5", "log.npz"])
def test_random_bytes_are_no_log(tmp_path, name):
    for seed in range(5):
        (tmp_path / name).write_bytes(random.Random(seed).randbytes(1000))
        with pytest.raises(DataError, match="cannot be read as"):
            load_log(tmp_path / name)
