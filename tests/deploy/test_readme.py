"""The README's way from a data frame to a served policy, as it stands there; only the training is shortened."""

import http.client
import json
import os
import re
import signal
import socket
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pandas

import phyb

README = Path(__file__).parents[2] / "README.md"
TINY: dict[str, Any] = {"policy_hidden": (8,)}
TINY |= dict.fromkeys(("steps", "log_every", "evaluate_every", "checkpoint_every"), 5)


def ward(patients=40, days=10):
    """What the frame in the README may hold."""
    rng, rows = np.random.default_rng(0), patients * days
    day = np.tile(np.arange(days), patients)
    columns = {
        "pulse": rng.normal(80, 10, rows),
        "pressure": rng.normal(120, 15, rows),
        "dose": rng.uniform(0, 5, rows),
    }
    return pandas.DataFrame(
        columns
        | {"reward": rng.normal(size=rows), "patient": np.repeat(np.arange(patients), days)}
        | {"died": (day == days - 1) & (rng.random(rows) < 0.3)}
    )


def ask(port, found):
    """Ask the service once it is there, then stop it as Ctrl-C does."""
    until = time.monotonic() + 120
    while time.monotonic() < until:
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
            connection.request("POST", "/act", json.dumps({"observations": [[80.0, 120.0]]}))
            found.append(json.loads(connection.getresponse().read()))
        except OSError:
            time.sleep(0.1)
        else:
            # It answers only after it has taken the signal over.
            os.kill(os.getpid(), signal.SIGINT)
            return


def test_from_a_frame_to_an_exported_and_served_policy(tmp_path, monkeypatch, capsys):
    section = README.read_text().partition("## From a data frame to a served policy")[2]
    match = re.search(r"```python\n(.*?)```", section, re.DOTALL)
    assert match is not None
    code = match[1]
    assert len([line for line in code.splitlines() if line.strip()]) <= 15
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    for short, text in (("phyb.PhyB()", "phyb.BC(**TINY)"), ("port=8000", f"port={port}")):
        assert short in code
        code = code.replace(short, text)
    monkeypatch.chdir(tmp_path)
    ward().to_csv("ward.csv")
    found: list[Any] = []
    asking = threading.Thread(target=ask, args=(port, found), daemon=True)
    asking.start()
    names: dict[str, Any] = {"TINY": TINY}
    exec(compile(code, "README.md", "exec"), names)
    asking.join()
    assert f"Serving at http://127.0.0.1:{port}" in capsys.readouterr().out
    observation = np.array([[80.0, 120.0]], np.float32)
    session = onnxruntime.InferenceSession("ward.onnx", providers=["CPUExecutionProvider"])
    (exported,) = session.run(None, {"observations": observation})
    acted = names["run"].policy.act(observation)
    np.testing.assert_allclose(np.asarray(exported), acted, atol=5e-5)
    np.testing.assert_allclose(found[0]["actions"], acted, atol=1e-5)
    about = session.get_modelmeta().custom_metadata_map
    assert json.loads(about["observation_names"]) == ["pulse", "pressure"]
    assert json.loads(about["action_names"]) == ["dose"]
    assert 0.0 <= json.loads(about["action_low"])[0] < json.loads(about["action_high"])[0] <= 5.0
    assert phyb.open_run("runs/ward").result["algorithm"] == "bc"
