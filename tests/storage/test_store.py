"""The manifest: what is listed and matches counts, everything else does not, and nothing leads out of the folder."""

import json
import os

import jax.numpy as jnp
import pytest

from phyb.errors import DataError, StorageError
from phyb.storage.files import write_json
from phyb.storage.store import Store, check_format, inside


@pytest.fixture
def store(tmp_path):
    store = Store(tmp_path)
    store.save_json("deep/a.json", {"x": 1})
    store.save_tree("t.safetensors", {"w": jnp.arange(3.0)}, {"step": 4})
    return store


def test_listed_files_are_vouched_for_by_a_later_process(store, tmp_path):
    again = Store(tmp_path)
    assert again.vouches("deep/a.json", "t.safetensors")
    assert again.about("t.safetensors") == {"step": 4}
    assert jnp.array_equal(again.load_tree("t.safetensors", {"w": jnp.zeros(3)})["w"], jnp.arange(3.0))


def test_a_file_that_was_never_listed_does_not_count(store, tmp_path):
    write_json(tmp_path / "b.json", {})
    assert not Store(tmp_path).vouches("b.json")
    assert Store(tmp_path).state("b.json") == "missing"
    assert Store(tmp_path).about("b.json") is None


@pytest.mark.parametrize(
    ("harm", "state"), [("flip", "damaged"), ("cut", "damaged"), ("longer", "damaged"), ("gone", "missing")]
)
def test_every_harm_is_seen(store, tmp_path, harm, state):
    path = tmp_path / "t.safetensors"
    content = path.read_bytes()
    path.unlink()
    changed = {"flip": bytes([content[0] ^ 1]) + content[1:], "cut": content[:-1], "longer": content + b"\0"}
    if harm in changed:
        path.write_bytes(changed[harm])
    assert Store(tmp_path).state("t.safetensors") == state
    assert Store(tmp_path).about("t.safetensors") is None


def test_of_a_growing_file_only_the_beginning_is_vouched_for(tmp_path):
    (tmp_path / "m").write_bytes(b"first\n")
    store = Store(tmp_path)
    store.add("m", grows=True)
    (tmp_path / "m").write_bytes(b"first\nsecond\n")
    assert store.vouches("m")
    (tmp_path / "m").write_bytes(b"firsT\nsecond\n")
    assert store.state("m") == "damaged"
    (tmp_path / "m").write_bytes(b"fir")
    assert store.state("m") == "damaged"


def test_dropped_files_and_their_empty_folders_go(store, tmp_path):
    store.drop("deep/a.json", "never-there")
    assert not (tmp_path / "deep").exists()
    assert list(Store(tmp_path).entries) == ["t.safetensors"]


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "a/../../x", "", ".", "a\0b"])
def test_names_that_lead_out_are_refused(tmp_path, name):
    with pytest.raises(DataError, match="outside"):
        inside(tmp_path, name)


def test_links_that_lead_out_are_refused(tmp_path):
    (tmp_path / "secret").write_text("not yours")
    root = tmp_path / "run"
    root.mkdir()
    os.symlink(tmp_path / "secret", root / "policy.json")
    os.symlink(tmp_path, root / "below")
    for name in ("policy.json", "below/secret"):
        with pytest.raises(DataError, match="link"):
            inside(root, name)
    (root / "own").write_text("mine")
    os.symlink("own", root / "alias")
    assert inside(root, "alias").read_text() == "mine"


@pytest.mark.parametrize(
    "content",
    [
        [],
        {},
        {"format": 2},
        {"format": "2", "files": {}},
        {"format": True, "files": {}},
        {"format": 0, "files": {}},
        {"format": 2, "files": []},
        {"format": 2, "files": {"a": 1}},
        {"format": 2, "files": {"a": {"size": "1", "sha256": "", "grows": False}}},
        {"format": 2, "files": {"a": {"size": 1, "sha256": "", "grows": False, "more": 1}}},
        {"format": 2, "files": {"../a": {"size": 1, "sha256": "", "grows": False}}},
    ],
)
def test_a_manifest_that_is_none_is_refused(tmp_path, content):
    (tmp_path / "manifest.json").write_text(json.dumps(content))
    with pytest.raises(DataError):
        _ = Store(tmp_path).entries


def test_a_later_format_names_who_wrote_it_and_what_is_read_here():
    with pytest.raises(DataError, match=r"by phyb 9\.1 in format 7.*reads formats 1 to 3.*Install"):
        check_format(7, "run", "phyb 9.1")


def test_a_store_that_lost_its_right_to_write_changes_nothing(store, tmp_path):
    def refuse():
        raise StorageError("gone")

    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    store.guard = refuse
    for change in (
        lambda: store.save_json("new.json", {}),
        lambda: store.save_tree("new", {}),
        lambda: store.drop("t.safetensors"),
        lambda: store.add("t.safetensors"),
    ):
        with pytest.raises(StorageError):
            change()
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
