import io
import re
import struct
import zipfile

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from log_examples import example_log, file_arrays, write_hdf5, write_npz

from phyb.data import load_log, save_log
from phyb.errors import DataError

WRITERS = {".hdf5": write_hdf5, ".npz": write_npz}


@pytest.fixture(params=[".hdf5", ".npz"])
def suffix(request):
    return request.param


def refused(path, *words, **options):
    """Load, expect a DataError (exit code 2) whose text names the file and holds the words in order."""
    with pytest.raises(DataError) as caught:
        load_log(path, **options)
    assert caught.value.exit_code == 2
    pattern = ".*".join(re.escape(word) for word in (str(path), *words))
    assert re.search(pattern, str(caught.value), re.DOTALL), str(caught.value)


def changed(field, change):
    arrays = file_arrays(example_log())
    array = arrays[field].copy()
    arrays[field] = change(array)
    return arrays


def put(row, value):
    def change(array):
        array = array.astype(np.float64)
        array[row] = value
        return array

    return change


CASES = {
    "short rewards": ("rewards", lambda a: a[:-1], ["rewards", "has 39 rows, observations has 40", "cut or"]),
    "long flags": (
        "terminals",
        lambda a: np.append(a, True),
        ["terminals", "has 41 rows", "one entry per step"],
    ),
    "flat observations": (
        "observations",
        lambda a: a[:, 0],
        ["observations", "(40,)", "(rows, size)", "Reshape"],
    ),
    "deep actions": ("actions", lambda a: a[..., None], ["actions", "(40, 2, 1)", "(rows, size)", "Reshape"]),
    "wide rewards": ("rewards", lambda a: np.stack([a, a], 1), ["rewards", "(40, 2)", "(rows,)", "Reshape"]),
    "scalar rewards": ("rewards", lambda a: a[0], ["rewards", "shape ()", "(rows,)"]),
    "narrow successors": (
        "next_observations",
        lambda a: a[:, :2],
        ["next_observations", "2 columns", "has 3"],
    ),
    "no columns": ("actions", lambda a: a[:, :0], ["actions", "no columns"]),
    "nan": (
        "observations",
        put((7, 1), np.nan),
        ["observations, row 7", "nan in column 1", "(1 rows", "Repair"],
    ),
    "inf": ("rewards", put(12, -np.inf), ["rewards, row 12", "-inf", "finite"]),
    "beyond float32": (
        "next_observations",
        put((39, 2), 1e300),
        ["next_observations, row 39", "inf", "float32"],
    ),
    "nan action": ("actions", put((3, 0), np.nan), ["actions, row 3", "nan in column 0"]),
    "half a flag": ("terminals", put(5, 0.5), ["terminals, row 5", "0.5", "True or False"]),
    "nan flag": ("timeouts", put(6, np.nan), ["timeouts, row 6", "nan", "True or False"]),
    "text": ("observations", lambda a: a.astype("S8"), ["observations", "|S8", "plain numbers"]),
    "complex": ("actions", lambda a: a.astype(complex), ["actions", "complex", "plain numbers"]),
    "gap": (
        "next_observations",
        put(14, 9.0),
        ["next_observations, row 14", "row 15", "(1 of 36", "timeouts"],
    ),
    "outside": ("actions", put((21, 1), 1.5), ["actions, row 21", "outside [-1, 1]", "action_low"]),
}


@pytest.mark.parametrize("case", CASES)
def test_a_bad_field_is_named_with_row_finding_and_remedy(tmp_path, suffix, case):
    field, change, words = CASES[case]
    refused(WRITERS[suffix](tmp_path / f"log{suffix}", changed(field, change)), *words)


@pytest.mark.parametrize("field", ["observations", "actions", "rewards", "terminals"])
def test_a_missing_key_is_named_and_the_present_ones_listed(tmp_path, suffix, field):
    arrays = file_arrays(example_log())
    del arrays[field]
    present = ", ".join(sorted(arrays))
    refused(WRITERS[suffix](tmp_path / f"log{suffix}", arrays), f"{field}: is missing", present, "Add it")


def test_alternative_names_appear_in_messages_and_cannot_be_given_twice(tmp_path, suffix):
    arrays = file_arrays(example_log())
    arrays["terminated"] = arrays["terminals"][:-1]
    refused(WRITERS[suffix](tmp_path / f"a{suffix}", arrays), "terminals", "twice, also as terminated", "Keep one")
    del arrays["terminals"]
    refused(WRITERS[suffix](tmp_path / f"b{suffix}", arrays), "terminated: has 39 rows")


def test_a_log_without_rows_is_refused(tmp_path, suffix):
    arrays = {name: array[:0] for name, array in file_arrays(example_log()).items()}
    refused(WRITERS[suffix](tmp_path / f"log{suffix}", arrays), "observations: has no rows", "record")


def test_shuffled_rows_are_refused_unless_each_is_its_own_episode(tmp_path, suffix):
    order = np.random.default_rng(0).permutation(40)
    arrays = {name: array[order] for name, array in file_arrays(example_log()).items()}
    path = WRITERS[suffix](tmp_path / f"log{suffix}", arrays)
    refused(path, "next_observations, row 0", "look shuffled", "timeouts (truncated) to True on every row")
    arrays["timeouts"] = np.ones(40, bool)
    assert len(load_log(WRITERS[suffix](path, arrays)).episode_returns()) == 40


@pytest.mark.parametrize(
    ("bounds", "words"),
    [
        ({"action_low": -1.0}, ["action_high: is missing", "Store both"]),
        ({"action_low": [-1.0, -1, -1], "action_high": 1.0}, ["action_low", "(3,)", "(2,)", "one bound per"]),
        ({"action_low": -np.inf, "action_high": 1.0}, ["action_low", "-inf", "finite"]),
        ({"action_low": -1.0, "action_high": [1.0, -1]}, ["action_low", "column 1", "not below", "range"]),
        ({"action_low": "low", "action_high": 1.0}, ["action_low", "type", "one number per"]),
        (
            {"action_low": -0.5, "action_high": 0.5},
            ["actions, row ", "outside [-0.5, 0.5]", "Clip or rescale"],
        ),
    ],
)
def test_bad_bounds_are_explained(tmp_path, suffix, bounds, words):
    refused(WRITERS[suffix](tmp_path / f"log{suffix}", file_arrays(example_log()), **bounds), *words)


def test_actions_beyond_the_unit_box_need_bounds(tmp_path, suffix):
    path = WRITERS[suffix](tmp_path / f"log{suffix}", changed("actions", lambda a: 2 * a))
    refused(path, "actions, row ", "the file gives no bounds", "action_low and action_high")
    assert load_log(path, action_bounds=(-2, 2)).action_high.tolist() == [2, 2]
    refused(path, "actions, row ", "outside [-1.1, 1.1]", action_bounds=(-1.1, 1.1))


@pytest.mark.parametrize("metadata", [{"env_id": 3}, {"provenance": np.arange(3)}])
def test_metadata_of_the_wrong_kind_is_refused(tmp_path, suffix, metadata):
    path = WRITERS[suffix](tmp_path / f"log{suffix}", file_arrays(example_log()), **metadata)
    refused(path, next(iter(metadata)), "not text", "leave it out")


def test_a_newer_format_is_refused(tmp_path, suffix):
    path = WRITERS[suffix](tmp_path / f"log{suffix}", file_arrays(example_log()), phyb_format=2)
    refused(path, "phyb_format", "is 2", "newer phyb")


def test_paths_that_cannot_be_logs(tmp_path, suffix):
    refused(tmp_path / f"none{suffix}", "no such file")
    (tmp_path / f"folder{suffix}").mkdir()
    refused(tmp_path / f"folder{suffix}", "folder without logs")
    (tmp_path / f"empty{suffix}").touch()
    refused(tmp_path / f"empty{suffix}", "empty (0 bytes)")
    (tmp_path / f"text{suffix}").write_text("time,price\n0,1\n")
    refused(tmp_path / f"text{suffix}", "cannot be read as", "truncated, damaged or of another format")
    refused(tmp_path / ("x" * 300 + suffix), "cannot be read as", "File name too long")
    refused(tmp_path / "log.xlsx", "suffix '.xlsx'", ".hdf5, .h5, .npz")
    with pytest.raises(DataError, match=r"log\.pkl: has suffix"):
        save_log(example_log(), tmp_path / "log.pkl")


@given(share=st.floats(0.001, 0.999))
@settings(max_examples=25, deadline=None)
def test_truncated_files_are_refused_wherever_they_are_cut(share, tmp_path_factory):
    folder = tmp_path_factory.mktemp("cut")
    for suffix in WRITERS:
        path = folder / f"log{suffix}"
        save_log(example_log(), path)
        content = path.read_bytes()
        path.write_bytes(content[: max(1, int(share * len(content)))])
        refused(path, "cannot be read as", "truncated")


@given(position=st.floats(0, 0.9999), value=st.integers(0, 255))
@settings(max_examples=25, deadline=None)
def test_a_changed_byte_in_an_npz_file_is_found_or_harmless(position, value, tmp_path_factory):
    path = tmp_path_factory.mktemp("flip") / "log.npz"
    save_log(example_log(), path)
    content = bytearray(path.read_bytes())
    content[int(position * len(content))] = value
    path.write_bytes(content)
    try:
        log = load_log(path)
    except DataError:
        return
    # Even when the change hits the name of an optional field, no step is made up.
    assert steps(log) <= steps(example_log())


def steps(log):
    return set(map(bytes, np.column_stack([log.observations, log.actions, log.rewards, log.next_observations])))


class Bomb:
    def __reduce__(self):
        return (print, ("unpickled!",))


def test_objects_are_refused_and_nothing_is_unpickled(tmp_path, capsys):
    arrays = file_arrays(example_log())
    objects = np.empty((40, 3), object)
    objects[:] = Bomb()
    arrays["observations"] = objects
    refused(write_npz(tmp_path / "log.npz", arrays), "observations: holds Python objects", "plain numbers")
    arrays = file_arrays(example_log())
    path = write_npz(tmp_path / "meta.npz", arrays, provenance=np.array({"a": Bomb()}, object))
    refused(path, "provenance", "type object", "leave it out")
    assert "unpickled" not in capsys.readouterr().out


def test_text_objects_in_hdf5_are_refused(tmp_path):
    path = write_hdf5(tmp_path / "log.hdf5", changed("observations", lambda a: a.astype(str).astype(object)))
    refused(path, "observations: holds Python objects", "plain numbers")


def replace_member(path, name, header, data=b""):
    with zipfile.ZipFile(path) as archive:
        members = {info.filename: archive.read(info) for info in archive.infolist()}
    text = header.encode().ljust(117) + b"\n"
    members[name] = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + data
    with zipfile.ZipFile(path, "w") as archive:
        for member, content in members.items():
            archive.writestr(member, content)


@pytest.mark.parametrize("shape", ["(10**15, 3)", "(1000000000000000, 3)", "(-40, -3)", "(41, 3)", "(40.0, 3)"])
def test_forged_npz_headers_do_not_take_memory(tmp_path, shape):
    path = write_npz(tmp_path / "log.npz", file_arrays(example_log()))
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}}}"
    replace_member(path, "observations.npy", header, bytes(480))
    with pytest.raises(DataError, match=r"log\.npz: .*(claims|cannot be read)"):
        load_log(path)


def test_an_npz_member_of_another_npy_version_or_compression_is_refused(tmp_path):
    path = tmp_path / "log.npz"
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, np.zeros((40, 3), np.float32), version=(3, 0))
    for compression, words in ((0, "NPY version (3, 0)"), (14, "unusual compression")):
        write_npz(path, {k: v for k, v in file_arrays(example_log()).items() if k != "observations"})
        with zipfile.ZipFile(path, "a") as archive:
            archive.writestr("observations.npy", buffer.getvalue(), compress_type=compression)
        refused(path, "observations", words)


def test_hdf5_data_declared_but_not_stored_does_not_take_memory(tmp_path):
    arrays = file_arrays(example_log())
    del arrays["observations"]
    path = write_hdf5(tmp_path / "log.hdf5", arrays)
    with h5py.File(path, "r+") as file:
        file.create_dataset("observations", (10**12, 3), "f4", chunks=(1000, 3), compression="gzip")
    refused(path, "observations: claims 12,000,000,000,000 bytes", "stores only 0 bytes", "forged")


def test_hdf5_chunks_larger_than_their_data_do_not_take_memory(tmp_path):
    arrays = file_arrays(example_log())
    observations = arrays.pop("observations")
    path = write_hdf5(tmp_path / "log.hdf5", arrays)
    with h5py.File(path, "r+") as file:
        file.create_dataset("observations", (40, 3), "f4", chunks=(10**8, 3), maxshape=(None, 3))
    refused(path, "observations: claims 1,200,000,000 bytes")
    assert observations.shape == (40, 3)


def test_a_log_larger_than_the_machine_is_refused(tmp_path, suffix, monkeypatch):
    path = WRITERS[suffix](tmp_path / f"log{suffix}", file_arrays(example_log()))
    monkeypatch.setattr("os.sysconf", lambda name: 10)
    refused(path, "GiB of memory", "--rows-in disk")


def test_hdf5_never_reaches_outside_the_file(tmp_path):
    arrays = file_arrays(example_log())
    outside = write_hdf5(tmp_path / "outside.hdf5", arrays)
    observations = arrays.pop("observations")
    (tmp_path / "numbers.bin").write_bytes(observations.tobytes())
    layout = h5py.VirtualLayout((40, 3), "f4")
    layout[:] = h5py.VirtualSource(outside, "observations", (40, 3))
    ways = {
        "external": lambda file: file.__setitem__("observations", h5py.ExternalLink(outside, "observations")),
        "soft": lambda file: file.__setitem__("observations", h5py.SoftLink("/actions")),
        "dangling": lambda file: file.__setitem__("observations", h5py.SoftLink("/nowhere")),
        "storage": lambda file: file.create_dataset(
            "observations", (40, 3), "f4", external=[(tmp_path / "numbers.bin", 0, 480)]
        ),
        "virtual": lambda file: file.create_virtual_dataset("observations", layout),
        "group": lambda file: file.create_group("observations"),
        "null": lambda file: file.__setitem__("observations", h5py.Empty("f4")),
    }
    words = {"storage": "another file", "virtual": "another file", "group": "a group", "null": "shape (none)"}
    for name, make in ways.items():
        path = write_hdf5(tmp_path / f"{name}.hdf5", arrays)
        with h5py.File(path, "r+") as file:
            make(file)
        refused(path, "observations", words.get(name, "a link to data elsewhere"))


def test_hdf5_attributes_of_other_types_are_left_alone_or_refused(tmp_path):
    nested = np.array([(1, 2.0)], [("a", "i4"), ("b", "f4")])
    arrays = file_arrays(example_log())
    log = load_log(write_hdf5(tmp_path / "log.hdf5", arrays, table=nested, empty=h5py.Empty("f4"), flag=True))
    assert log.provenance["attributes"] == {"flag": True}
    refused(write_hdf5(tmp_path / "bad.hdf5", arrays, provenance=nested), "provenance", "is not a short text")
