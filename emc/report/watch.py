"""The report page on a loopback address, made anew while runs go on.

The server knows two addresses, the page and its version, and nothing of the disk. Only programs of this machine reach it, and it answers
only those that ask for it by its own name, so that no other site's page can read it through a browser.
"""

from __future__ import annotations

import contextlib
import hashlib
import socket
import sys
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from emc.errors import UserError
from emc.report.site import Site

HOST = "127.0.0.1"
LOOK_SECONDS = 1.0  # between two looks at the runs
IDLE_SECONDS = 10.0  # for which a client may neither ask nor take anything
LONGEST_SECONDS = 60.0  # that a connection may last in all
REST = 4.0  # times as long as making the page took, at least, so that those who train have the machine to themselves


class _Server(ThreadingHTTPServer):
    """One that says nothing of clients who leave in the middle of an answer, or never ask."""

    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class Watch:
    """A site, its newest page, and the server that shows it. Port 0 takes any that is free."""

    def __init__(self, site: Site, port: int, say: Callable[[str], None] = print) -> None:
        self.site, self.say = site, say
        self.version, self.page = "", b""
        self._said: set[str] = set()
        try:
            self._server = _Server((HOST, port), self._handler())
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or "it must be from 0 to 65535"
            raise UserError(f"cannot serve on port {port}: {reason}. Choose another with --port, or 0 for any that is free.") from error
        try:
            self.look()
        except UserError:
            self._server.server_close()
            raise

    @property
    def address(self) -> str:
        """Where the page is."""
        return f"http://{HOST}:{self._server.server_port}/"

    @property
    def bound(self) -> str:
        """The address of this machine that it can be reached under."""
        return str(self._server.server_address[0])

    def look(self) -> float:
        """Make the page anew if runs have changed; how long to rest afterwards."""
        began = time.monotonic()
        try:
            runs = self.site.runs()
            for problem in self.site.problems:
                self._note(problem)
            version = hashlib.sha256(repr(self.site.signature(runs)).encode()).hexdigest()[:16]
            if version != self.version:
                page = self.site.page(runs, version, self._note).encode("utf-8", "replace")
                self.page, self.version = page, version
        except (UserError, OSError) as error:  # perhaps half-written, or just removed; the older page stays
            if not self.version:
                raise UserError(str(error)) from error
            self._note(str(error))
        return max(LOOK_SECONDS, REST * (time.monotonic() - began))

    def run(self, ended: threading.Event) -> None:
        """Serve until told to end."""
        thread = threading.Thread(target=self._server.serve_forever, name="report server", daemon=True)
        thread.start()
        rest = LOOK_SECONDS
        try:
            while not ended.wait(rest):
                rest = self.look()
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()

    def _note(self, line: str) -> None:
        """Say what is wrong, once."""
        if line not in self._said:
            self._said.add(line)
            self.say(line)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        watch = self

        class Handler(BaseHTTPRequestHandler):
            server_version, sys_version = "emc", ""
            timeout = IDLE_SECONDS

            def handle(self) -> None:
                end = threading.Timer(LONGEST_SECONDS, self._hang_up)
                end.daemon = True
                end.start()
                try:
                    super().handle()
                finally:
                    end.cancel()

            def _hang_up(self) -> None:
                with contextlib.suppress(OSError):
                    self.connection.shutdown(socket.SHUT_RDWR)

            def do_GET(self) -> None:
                port = watch._server.server_port
                if self.headers.get("Host") not in (f"{HOST}:{port}", f"localhost:{port}"):
                    self.send_error(HTTPStatus.MISDIRECTED_REQUEST)
                elif self.path == "/":
                    self._answer(watch.page, "text/html; charset=utf-8")
                elif self.path == "/version":
                    self._answer(watch.version.encode(), "text/plain; charset=utf-8")
                else:
                    self.send_error(HTTPStatus.NOT_FOUND)

            def _answer(self, content: bytes, kind: str) -> None:
                self.send_response(HTTPStatus.OK)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(content)))
                self.send_header("Cache-Control", "no-store")
                self.send_header("X-Content-Type-Options", "nosniff")
                self.send_header("X-Frame-Options", "DENY")
                self.send_header("Cross-Origin-Resource-Policy", "same-origin")
                self.send_header("Referrer-Policy", "no-referrer")
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: object) -> None:
                """Nothing: a line for every question would bury what matters."""

        return Handler
