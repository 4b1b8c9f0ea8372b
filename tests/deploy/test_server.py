"""A served policy, asked by real requests: proper ones, malformed ones, and clients that dawdle."""

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from phyb.cli import main
from phyb.deploy.ground import Ground
from phyb.deploy.server import MOST_BYTES, MOST_CONNECTIONS, Server
from phyb.deploy.service import MOST_ROWS, Service
from phyb.dynamics.rows import split_rows
from phyb.errors import UsageError
from phyb.networks import Standardizer
from phyb.policy.actor import Actor
from phyb.policy.policy import Policy

SECONDS = 1.0


@pytest.fixture(scope="module")
def service(linear_log, linear_pool):
    log = linear_log()
    weights, biases = np.zeros((2, 4, 4)), np.zeros((2, 4))
    weights[0, 0, 0] = 1.0  # the models disagree where the first number is large
    ground = Ground.of(log, split_rows(log, 0.3, 0), linear_pool(weights, biases))
    actor, units = Actor(jax.random.key(0), 3, 1, (8,)), Standardizer.fit(jnp.asarray(log.observations))
    policy = Policy(actor, units, -jnp.ones(1), jnp.ones(1))
    return Service(policy, ground, {"run": "a </script> run", "algorithm": "bc"})


@pytest.fixture(scope="module")
def server(service):
    with Server(service, port=0, seconds=SECONDS) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield server
        server.finish()
        thread.join()


def ask(server, method, path, body=None, headers=None):
    connection = http.client.HTTPConnection(*server.server_address[:2], timeout=20)
    with contextlib.closing(connection):
        connection.request(method, path, body, headers or {})
        reply = connection.getresponse()
        return reply.status, reply.headers, reply.read()


def act(server, observations):
    status, _, body = ask(server, "POST", "/act", json.dumps({"observations": observations}))
    return status, json.loads(body)


def raw(server, content, pause=0.0):
    """The answer to bytes as they are, sent one by one if there is a pause."""
    with socket.create_connection(server.server_address[:2], timeout=20) as connection:
        with contextlib.suppress(OSError):
            for place in range(0, len(content), 1 if pause else max(1, len(content))):
                connection.sendall(content[place : place + 1] if pause else content)
                time.sleep(pause)
        parts = []
        while part := connection.recv(65_536):
            parts.append(part)
    return b"".join(parts)


def test_actions_are_those_of_the_policy_and_models_say_how_sure_they_are(server, service):
    rows = service.ground.log.observations[:7]
    status, found = act(server, rows.tolist())
    assert status == 200
    np.testing.assert_allclose(found["actions"], service.policy.act(rows), atol=1e-6)
    assert set(found) == {"actions", "outside_data", "share_outside", "disagreement_percentile"}
    status, found = act(server, [[0.0, 0.0, 3.0], [0.5, 0.0, 3.0], [100.0, 0.0, 3.0]])
    assert status == 200
    assert found["outside_data"] == [False, False, True]
    assert found["share_outside"] == pytest.approx(1 / 3)
    low, middle, high = found["disagreement_percentile"]
    assert low < 5 < middle < 95 < high == 100


def test_health_page_and_head(server):
    status, headers, body = ask(server, "GET", "/health")
    assert (status, headers["Content-Type"], json.loads(body)["status"]) == (200, "application/json", "ok")
    status, headers, body = ask(server, "GET", "/")
    assert status == 200
    assert headers["Content-Type"].startswith("text/html")
    assert b"a \\u003c/script> run" in body  # names cannot break out of the page
    assert b'"KNOWN"' not in body
    assert ask(server, "HEAD", "/")[::2] == (200, b"")


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ("", 400, "not JSON"),
        ("{", 400, "not JSON"),
        (b"\xff\xfe", 400, "not JSON"),
        ("[" * 100_000, 400, "nested too deeply"),
        ('{"observations": [], "observations": []}', 400, "given twice"),
        ("[]", 422, "Expected an object"),
        ('{"rows": [[1, 2, 3]]}', 422, "Expected an object"),
        ('{"observations": []}', 422, "found 0 rows"),
        ('{"observations": 3}', 422, "found int"),
        ('{"observations": [[1, 2]]}', 422, "row 0: found 2 numbers, expected a list of 3"),
        ('{"observations": [[1, 2, 3], 4]}', 422, "row 1: found int"),
        ('{"observations": [[1, 2, NaN]]}', 422, "number 2: found nan"),
        ('{"observations": [[1, 2, -Infinity]]}', 422, "number 2: found -inf"),
        ('{"observations": [[1, 2, 1e999]]}', 422, "number 2: found inf"),
        ('{"observations": [[1, 2, 1e35]]}', 422, "number 2: found 1e+35"),
        ('{"observations": [[1, 2, ' + "9" * 400 + "]]}", 422, "number 2: found 9999"),
        ('{"observations": [[1, 2, ' + "9" * 5000 + "]]}", 400, "not JSON"),
        ('{"observations": [[1, 2, "3"]]}', 422, "number 2: found 3"),
        ('{"observations": [[1, 2, true]]}', 422, "number 2: found True"),
        ('{"observations": [[1, 2, null]]}', 422, "number 2: found None"),
        (json.dumps({"observations": [[0, 0, 0]] * (MOST_ROWS + 1)}), 422, f"found {MOST_ROWS + 1} rows"),
    ],
)
def test_bodies_that_are_no_observations(server, body, status, message):
    found, _, answer = ask(server, "POST", "/act", body)
    assert found == status
    assert message in json.loads(answer)["error"]


def test_as_many_rows_as_are_allowed_and_the_largest_numbers(server):
    assert act(server, [[0.0, 0.0, 3.0]] * MOST_ROWS)[0] == 200
    status, found = act(server, [[1e30, -1e30, 1e30]])
    assert status in (200, 422)
    assert "Traceback" not in str(found)


def test_paths_and_methods(server):
    for method, path, status in (
        ("GET", "/nowhere", 404),
        ("POST", "/nowhere", 404),
        ("PUT", "/nowhere", 404),
        ("GET", "/act", 405),
        ("POST", "/", 405),
        ("DELETE", "/act", 405),
        ("BREW", "/health", 405),
    ):
        found, headers, body = ask(server, method, path, headers={"Content-Length": "0"})
        assert found == status, (method, path)
        assert json.loads(body)["error"]
        assert ("Allow" in headers) is (status == 405)
    assert ask(server, "GET", "/health?x=1")[0] == 200


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"POST /act HTTP/1.1\r\n\r\n", 411),
        (b"POST /act HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 411),
        (b"POST /act HTTP/1.1\r\nContent-Length: -5\r\n\r\n", 400),
        (b"POST /act HTTP/1.1\r\nContent-Length: many\r\n\r\n", 400),
        (b"POST /act HTTP/1.1\r\nContent-Length: \xb2\r\n\r\n", 400),
        (b"POST /act HTTP/1.1\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}", 400),
        (b"POST /act HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % (MOST_BYTES + 1), 413),
        (b"POST /act HTTP/1.1\r\nContent-Length: %s\r\n\r\n" % (b"9" * 5000), 413),
        (b"nonsense\r\n\r\n", 400),
        (b"GET / HTTP/9.9\r\n\r\n", 505),
        (b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\n\r\n", 414),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * 70_000 + b"\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 200 + b"\r\n", 431),
        (b"\x16\x03\x01\x00\xff\r\n", 400),
    ],
)
def test_requests_that_are_no_proper_http(server, request_bytes, status):
    answer = raw(server, request_bytes)
    assert answer.startswith(b"HTTP/1.0 %d " % status)
    assert b"Traceback" not in answer


def test_a_large_body_that_is_refused_still_gets_its_answer(server):
    status, _, body = ask(server, "POST", "/act", b"x" * (MOST_BYTES + 1))
    assert (status, b"bytes" in body) == (413, True)


def test_slow_and_silent_clients_get_an_answer_in_time(server):
    assert raw(server, b"").startswith(b"HTTP/1.0 408 ")
    # A byte now and then is no way to hold a connection: the time is for the whole request.
    assert raw(server, b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 10, pause=0.1).startswith(b"HTTP/1.0 408 ")
    assert raw(server, b"POST /act HTTP/1.1\r\nContent-Length: 9\r\n\r\n{").startswith(b"HTTP/1.0 408 ")


def test_a_body_that_ends_early_is_said_to(server):
    with socket.create_connection(server.server_address[:2], timeout=20) as connection:
        connection.sendall(b"POST /act HTTP/1.1\r\nContent-Length: 9\r\n\r\n{")
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(65_536).startswith(b"HTTP/1.0 400 ")


def test_clients_that_vanish_and_too_many_of_them_do_no_harm(server, capsys):
    held = [socket.create_connection(server.server_address[:2], timeout=20) for _ in range(MOST_CONNECTIONS + 8)]
    held[-1].settimeout(20)
    assert held[-1].recv(65_536).startswith(b"HTTP/1.0 503 ")
    for connection in held:
        connection.close()
    until = time.monotonic() + 20
    while time.monotonic() < until:
        with contextlib.suppress(OSError, http.client.HTTPException):
            if ask(server, "GET", "/health")[0] == 200:
                break
    else:
        pytest.fail("the server does not answer any more")
    assert "Traceback" not in capsys.readouterr().err


def test_many_at_once_get_their_own_answers(server, service):
    rows, found = np.linspace(-2, 2, 16 * 3).reshape(16, 3).astype(np.float32), {}
    threads = [
        threading.Thread(target=lambda place=place: found.update({place: act(server, [rows[place].tolist()])}))
        for place in range(16)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    answers = np.array([found[place][1]["actions"][0] for place in range(16)])
    np.testing.assert_allclose(answers, service.policy.act(rows), atol=1e-6)


def test_an_address_that_is_taken_is_refused(server, service):
    with pytest.raises(UsageError, match="cannot be listened at"):
        Server(service, port=server.server_address[1])
    with pytest.raises(UsageError, match="cannot be listened at"):
        Server(service, port=70_000)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_command_serves_a_run_until_it_is_told_to_stop(run, number):
    command = ["serve", str(run.folder), "--port", "0", "--cache", str(run.folder.parent / "cache")]
    code = f"from phyb.cli import main; main({command!r})"
    environment = os.environ | {"PYTHONUNBUFFERED": "1", "COLUMNS": "200"}
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    )
    try:
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "")
        said = next(line for line in lines if "Serving at" in line)
        port = int(said.split("http://127.0.0.1:")[1].split()[0])
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        connection.request("POST", "/act", json.dumps({"observations": [[0.0, 100.0, 1.0]]}))
        answer = json.loads(connection.getresponse().read())
        np.testing.assert_allclose(answer["actions"], run.policy.act([[0.0, 100.0, 1.0]]), atol=1e-6)
        assert "disagreement_percentile" in answer
        process.send_signal(number)
        rest = process.communicate(timeout=30)[0]
    finally:
        process.kill()
    assert process.returncode == 0
    assert rest.strip().endswith("Stopped.")


def test_a_run_without_its_log_serves_actions_alone(run, monkeypatch):
    def lost(run):
        raise UsageError("the log is gone")

    monkeypatch.setattr(Ground, "of_run", lost)
    service, missing = Service.of_run(run)
    assert missing == "the log is gone"
    assert list(service.reply(b'{"observations": [[0, 100, 1]]}')) == ["actions"]
    assert b'"models": false' in service.page()
    assert "--host" not in missing
    with pytest.raises(SystemExit):
        main(["serve", str(run.folder / "nowhere")])
