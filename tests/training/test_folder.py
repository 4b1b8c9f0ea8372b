import json

import jax.numpy as jnp
import pytest

from phyb.errors import DataError
from phyb.training.folder import MetricsWriter, RunFolder, versions


def test_metrics_are_strict_json_lines_and_tensorboard_events(tmp_path):
    folder = RunFolder(tmp_path)
    with MetricsWriter(folder) as writer:
        writer.write("policy", 5, {"loss": jnp.asarray(0.5), "list": jnp.asarray([1.0, jnp.nan])})
        writer.write("policy", 6, {"loss": float("inf")})
    first, second = (json.loads(line, parse_constant=pytest.fail) for line in folder.metrics.read_text().splitlines())
    assert first == {"stage": "policy", "step": 5, "loss": 0.5, "list": [1.0, None]}
    assert second["loss"] is None
    assert list(folder.tensorboard.glob("events.*"))


def test_a_folder_without_config_is_not_a_run(tmp_path):
    with pytest.raises(DataError, match="not a run folder"):
        RunFolder(tmp_path).read_config()


def test_checkpoints_remember_where_the_metrics_ended(tmp_path):
    folder = RunFolder(tmp_path)
    state = {"weights": jnp.arange(3.0)}
    folder.metrics.write_text("one\n")
    folder.save_checkpoint(state, 7, keep=2)
    folder.metrics.write_text("one\ntwo\n")
    found = folder.load_checkpoint(state)
    assert found is not None
    assert jnp.array_equal(found[0]["weights"], state["weights"])
    assert found[1] == 7
    assert folder.metrics.read_text() == "one\n"


def test_no_checkpoint_is_none_and_only_damaged_ones_is_an_error(tmp_path):
    folder = RunFolder(tmp_path)
    assert folder.load_checkpoint({"weights": jnp.zeros(1)}) is None
    folder.save_checkpoint({"weights": jnp.zeros(1)}, 1, keep=2)
    folder.checkpoint_files()[0].write_bytes(b"")
    with pytest.raises(DataError, match="step-000000001"):
        folder.load_checkpoint({"weights": jnp.zeros(1)})


def test_versions_name_what_the_numbers_depend_on():
    assert {"phyb", "jax", "numpy", "python", "device"} <= versions().keys()
