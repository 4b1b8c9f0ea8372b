"""A small HTTP server for trying a policy: GET / and /health, POST /act. It is no more than that: no TLS, no users."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import socket
import socketserver
import sys
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any

from phyb.deploy.service import RequestError, Service
from phyb.errors import UsageError
from phyb.training.run import Run, open_run

MOST_BYTES = 4 * 2**20
"""Of a request's body."""
MOST_CONNECTIONS = 32
"""At once; further ones are told to come again."""
SECONDS = 10.0
"""For a request to arrive, and for its answer to be taken."""
_DRAIN_SECONDS = 1.0


class Server(socketserver.ThreadingTCPServer):
    """Serves one policy; every connection is one request.

    Args:
        service: what answers.
        host: address to listen at.
        port: port to listen at; 0 takes a free one.
        seconds: how long a client may take.

    Raises:
        UsageError: the address cannot be listened at.
    """

    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(
        self, service: Service, host: str = "127.0.0.1", port: int = 8000, *, seconds: float = SECONDS
    ) -> None:
        self.service, self.seconds = service, seconds
        self._slots = threading.BoundedSemaphore(MOST_CONNECTIONS)
        try:
            super().__init__((host, port), _Handler)
        except (OSError, OverflowError) as error:
            raise UsageError(f"{host}:{port}: cannot be listened at ({error}). Choose another --port.") from error

    @property
    def url(self) -> str:
        """Where it is found."""
        host, port = self.server_address[:2]
        return f"http://{host}:{port}"

    def process_request(self, request: Any, client_address: Any) -> None:
        """Start a thread for the connection, or refuse it if there are too many."""
        if self._slots.acquire(blocking=False):
            super().process_request(request, client_address)
            return
        request.settimeout(_DRAIN_SECONDS)
        with contextlib.suppress(OSError):
            request.sendall(b"HTTP/1.0 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n")
        self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer one connection."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._slots.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no news; anything else is a mistake of ours and shown, the server goes on."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)

    def finish(self, seconds: float = 2.0) -> None:
        """Take no more connections, and let those there are end within some seconds."""
        self.shutdown()
        self.server_close()
        until = time.monotonic() + seconds
        for _ in range(MOST_CONNECTIONS):
            if not self._slots.acquire(timeout=max(0.0, until - time.monotonic())):
                break


def serve(
    run: Run | str | os.PathLike[str],
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    on_message: Callable[[str], None] = print,
) -> None:
    """Serve the policy of a finished run until Ctrl-C or SIGTERM. To be called from the main thread.

    Args:
        run: a finished run, or its folder.
        host: address to listen at; the default is reached from this machine only.
        port: port to listen at; 0 takes a free one.
        on_message: is told the address, and what cannot be offered.

    Raises:
        UsageError: the address cannot be listened at.
    """
    service, missing = Service.of_run(run if isinstance(run, Run) else open_run(run))
    if missing is not None:
        on_message(f"Only actions are served: {missing}")
    stop = threading.Event()
    with Server(service, host, port) as server:
        before = {number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True).start()
            on_message(f"Serving at {server.url} (Ctrl-C stops)")
            stop.wait()
            server.finish()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
    on_message("Stopped.")


class _SlowClientError(Exception):
    pass


class _Timed(io.RawIOBase):
    """What a client sends, until its time is over: a limit per read alone could be stretched forever."""

    def __init__(self, connection: socket.socket, until: float) -> None:
        self._connection, self._until = connection, until

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left = self._until - time.monotonic()
        if left <= 0:
            raise _SlowClientError
        self._connection.settimeout(left)
        try:
            return self._connection.recv_into(buffer)
        except TimeoutError:
            raise _SlowClientError from None


class _Handler(BaseHTTPRequestHandler):
    server: Server  # pyright: ignore[reportIncompatibleVariableOverride]
    server_version, sys_version = "phyb", ""
    requestline, request_version, command = "", "HTTP/1.0", ""

    def setup(self) -> None:
        super().setup()
        self._until = time.monotonic() + self.server.seconds
        self.rfile = io.BufferedReader(_Timed(self.connection, self._until))

    def handle(self) -> None:
        try:
            self.handle_one_request()
        except _SlowClientError:
            self.send_error(408, f"The request did not arrive within {self.server.seconds:g} seconds.")

    def finish(self) -> None:
        # Unread bytes would turn the end of the connection into an error, and the client might never see the answer.
        super().finish()
        until = time.monotonic() + _DRAIN_SECONDS
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_WR)
            while (left := until - time.monotonic()) > 0:
                self.connection.settimeout(left)
                if not self.connection.recv(65_536):
                    break

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/":
            self._send(200, self.server.service.page(), "text/html; charset=utf-8")
        elif path == "/health":
            self._json(200, {"status": "ok"} | self.server.service.about)
        else:
            self._refuse(path, "GET, HEAD")

    do_HEAD = do_GET

    def do_POST(self) -> None:
        path = self.path.partition("?")[0]
        if path != "/act":
            self._refuse(path, "POST")
            return
        try:
            self._json(200, self.server.service.reply(self._body()))
        except RequestError as error:
            self.send_error(error.status, str(error))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("do_"):
            return lambda: self._refuse(self.path.partition("?")[0], name.removeprefix("do_"))
        raise AttributeError(name)

    def _refuse(self, path: str, method: str) -> None:
        """There is no such path, or it does not take this method."""
        allowed = {"/": "GET, HEAD", "/health": "GET, HEAD", "/act": "POST"}.get(path)
        if allowed is None:
            self.send_error(404, "There are GET /, GET /health and POST /act.")
        else:
            self._json(405, {"error": f"{path} takes {allowed}, not {self.command}."}, {"Allow": allowed})

    def _body(self) -> bytes:
        given = self.headers.get_all("Content-Length") or []
        if not given or "Transfer-Encoding" in self.headers:
            raise RequestError(411, "The request needs a Content-Length, and no Transfer-Encoding.")
        length = given[0].strip()
        if len(given) > 1 or not (length.isascii() and length.isdigit()):
            raise RequestError(400, f"Content-Length: found {length[:40]!r}, expected a whole number.")
        if len(length) > 12 or int(length) > MOST_BYTES:
            raise RequestError(413, f"The body may have {MOST_BYTES:,} bytes.")
        body = self.rfile.read(int(length))
        if len(body) < int(length):
            raise RequestError(400, f"The body ended after {len(body):,} of {int(length):,} bytes.")
        return body

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        self._json(code, {"error": message or HTTPStatus(code).phrase})

    def _json(self, status: int, content: dict[str, Any], headers: dict[str, str] | None = None) -> None:
        self._send(status, json.dumps(content, allow_nan=False).encode() + b"\n", "application/json", headers)

    def _send(self, status: int, body: bytes, kind: str, headers: dict[str, str] | None = None) -> None:
        if self.request_version == "HTTP/0.9":
            self.request_version = "HTTP/1.0"  # such answers would have no status
        self.connection.settimeout(self.server.seconds)
        self.send_response(status)
        given = {"Content-Type": kind, "Content-Length": str(len(body)), "Cache-Control": "no-store"}
        given |= {"X-Content-Type-Options": "nosniff", "Connection": "close"} | (headers or {})
        for name, value in given.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not logged."""
