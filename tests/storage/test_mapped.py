"""Arrays in files: blocks say what the whole array says, and compiled code reads a file without copying it."""

import errno
import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from phyb.errors import StorageError
from phyb.storage import mapped
from phyb.storage.mapped import blocks, column_range, column_std, new_array, on_device, rows_where, write_rows

ARRAYS = hnp.arrays(np.float32, st.tuples(st.integers(1, 30), st.integers(1, 3)), elements=st.floats(-9, 9, width=32))


@pytest.fixture(autouse=True, scope="module")
def small_blocks():
    before, mapped.BLOCK_BYTES = mapped.BLOCK_BYTES, 40
    yield
    mapped.BLOCK_BYTES = before


@given(ARRAYS)
def test_blocks_say_what_the_whole_array_says(array):
    np.testing.assert_array_equal(np.concatenate([array[block] for block in blocks(array)]), array)
    low, high = column_range(array)
    np.testing.assert_array_equal(low, array.min(axis=0))
    np.testing.assert_array_equal(high, array.max(axis=0))
    assert low.dtype == array.dtype
    np.testing.assert_allclose(column_std(array), array.std(axis=0, dtype=np.float64), rtol=1e-12, atol=1e-12)
    large = (array > 1).any(axis=1)
    first = int(np.argmax(large)) if large.any() else -1
    assert rows_where(array, lambda block: (array[block] > 1).any(axis=1)) == (first, int(large.sum()))


def test_what_is_written_in_blocks_is_read_back_and_cannot_be_changed(tmp_path):
    truth = np.arange(60, dtype=np.float32).reshape(20, 3)
    array = write_rows(tmp_path / "rows", truth.shape, np.float32, lambda block: truth[block])
    np.testing.assert_array_equal(array, truth)
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1.0


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="an accelerator has memory of its own")
def test_compiled_code_reads_the_file_itself(tmp_path):
    array = new_array(tmp_path / "rows", (50, 3), np.float32)
    array[:] = np.arange(150).reshape(50, 3)
    rows = on_device(array)
    assert rows.unsafe_buffer_pointer() == array.ctypes.data, "no copy was made"
    chosen = jnp.asarray([49, 0, 7])
    np.testing.assert_array_equal(jax.jit(lambda rows: rows[chosen])(rows), array[[49, 0, 7]])


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="disk space cannot be taken ahead here")
def test_a_full_disk_is_found_before_anything_is_written(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(StorageError, match="the disk is full"):
        new_array(tmp_path / "rows", (5, 3), np.float32)


def test_a_folder_that_vanished_is_not_made_again(tmp_path):
    with pytest.raises(StorageError, match="cannot be written"):
        new_array(tmp_path / "run" / "rows" / "inputs", (5, 3), np.float32)
    assert not (tmp_path / "run").exists()
