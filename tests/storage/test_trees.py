"""Files of arrays: they come back as they went, and a bad file is named, never half used."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy

from phyb.errors import DataError
from phyb.networks import MLP
from phyb.storage.trees import load_arrays, load_tree, read_about, save_tree


class Inner(NamedTuple):
    network: MLP
    number: jax.Array


class Outer(NamedTuple):
    inner: Inner
    key: jax.Array
    extras: dict[str, Any]


@pytest.fixture
def tree():
    return Outer(
        Inner(MLP(jax.random.key(3), (2, 4, 1)), jnp.asarray(7, jnp.int32)),
        jax.random.key(42),
        {
            "flags": jnp.array([True, False]),
            "keys": jax.random.split(jax.random.key(1), 3),
            "empty": jnp.zeros((0, 2)),
        },
    )


def numbers(tree):
    def plain(leaf):
        return np.asarray(jax.random.key_data(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf)

    return [plain(leaf) for leaf in jax.tree.leaves(tree)]


@pytest.mark.parametrize("by_shape", [False, True])
def test_a_nested_tree_with_keys_and_single_numbers_comes_back_bit_for_bit(tree, tmp_path, by_shape):
    save_tree(tmp_path / "tree.safetensors", tree)
    like = jax.eval_shape(lambda: tree) if by_shape else jax.tree.map(jnp.zeros_like, tree._replace(key=jnp.zeros(())))
    like = like if by_shape else like._replace(key=jax.random.key(0), extras=tree.extras)
    back = load_tree(tmp_path / "tree.safetensors", like)
    assert jax.tree.structure(back) == jax.tree.structure(tree)
    for was, now in zip(numbers(tree), numbers(back), strict=True):
        assert was.dtype == now.dtype
        np.testing.assert_array_equal(was, now)
    assert jax.random.normal(back.key) == jax.random.normal(tree.key)
    assert back.inner.number.shape == ()


def test_a_part_of_a_tree_is_read_without_the_rest(tree, tmp_path):
    save_tree(tmp_path / "tree.safetensors", (tree, jnp.ones(3)))
    network = load_tree(tmp_path / "tree.safetensors", tree.inner.network, "[0].inner.network")
    assert jax.tree.all(jax.tree.map(jnp.array_equal, network, tree.inner.network))
    with pytest.raises(DataError, match="other arrays"):
        load_tree(tmp_path / "tree.safetensors", tree.inner.network, "[1]")


def test_arrays_in_any_memory_order_come_back(tmp_path):
    array = np.arange(12.0, dtype=np.float32).reshape(3, 4)
    save_tree(tmp_path / "t.safetensors", {"turned": array.T, "strided": array[:, ::2]})
    back = load_arrays(tmp_path / "t.safetensors")
    np.testing.assert_array_equal(back["['turned']"], array.T)
    np.testing.assert_array_equal(back["['strided']"], array[:, ::2])


@pytest.mark.parametrize(
    ("like", "found"),
    [
        ({"a": jnp.zeros(4), "b": jnp.zeros(2)}, r"\['a'\] is float32\(3,\), expected float32\(4,\)"),
        ({"a": jnp.zeros(3, jnp.int32), "b": jnp.zeros(2)}, r"\['a'\] is float32\(3,\), expected int32"),
        ({"a": jnp.zeros(3)}, r"unexpected .*\['b'\]"),
        ({"a": jnp.zeros(3), "b": jnp.zeros(2), "c": jnp.zeros(1)}, r"missing .*\['c'\]"),
        ({"a": jax.random.key(0), "b": jnp.zeros(2)}, r"\['a'\] is float32\(3,\), expected uint32"),
    ],
)
def test_other_arrays_than_asked_for_are_refused_by_name(tmp_path, like, found):
    path = tmp_path / "tree.safetensors"
    save_tree(path, {"a": jnp.ones(3), "b": jnp.ones(2)})
    with pytest.raises(DataError, match=found) as error:
        load_tree(path, like)
    assert str(path) in str(error.value)


def test_the_same_content_gives_the_same_bytes_with_its_note(tmp_path):
    about = {"step": 3, "seed": 0, "name": "phyb"}
    for name in ("a", "b"):
        save_tree(
            tmp_path / name,
            {"x": jnp.ones(3), "y": jnp.zeros(2)},
            dict(sorted(about.items(), reverse=name == "b")),
        )
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert read_about(tmp_path / "a") == about


def test_a_note_that_is_not_there_is_refused_by_name(tmp_path):
    safetensors.numpy.save_file({"x": np.zeros(2)}, tmp_path / "foreign")
    (tmp_path / "damaged").write_bytes(b"nothing of the kind")
    for name in ("foreign", "damaged", "missing"):
        with pytest.raises(DataError, match=name):
            read_about(tmp_path / name)


@pytest.mark.parametrize("damage", ["cut", "header", "empty", "text", "missing", "folder"])
def test_damaged_and_missing_files_are_named(tree, tmp_path, damage):
    path = tmp_path / "tree.safetensors"
    save_tree(path, tree)
    content = path.read_bytes()
    path.unlink()
    bad = {
        "cut": content[:-5],
        "header": b"\xff" * 8 + content[8:],
        "empty": b"",
        "text": b"not arrays at all",
    }
    if damage in bad:
        path.write_bytes(bad[damage])
    elif damage == "folder":
        path.mkdir()
    for load in (lambda: load_tree(path, tree), lambda: load_arrays(path)):
        with pytest.raises(DataError) as error:
            load()
        assert str(path) in str(error.value)


def test_modules_with_static_parts_come_back_working(tmp_path):
    network = MLP(jax.random.key(0), (2, 8, 1), jnp.tanh)
    save_tree(tmp_path / "net.safetensors", network)
    back = load_tree(tmp_path / "net.safetensors", eqx.filter_eval_shape(MLP, jax.random.key(9), (2, 8, 1), jnp.tanh))
    rows = jnp.ones((3, 2))
    np.testing.assert_array_equal(back(rows), network(rows))
