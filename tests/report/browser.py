"""A headless Chromium, driven through its debugging pipe: JSON messages, each ended by a zero byte. Needs no package and no driver."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--headless",
    "--no-sandbox",  # without which it does not start for root
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--force-prefers-no-reduced-motion",
    "--remote-debugging-pipe",  # reads from 3, writes to 4
)
PATIENCE = 1800.0  # seconds until something that must happen counts as not happening


def find_browser() -> str | None:
    """A Chromium on this machine."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class BrowserEnded(Exception):
    """The browser answers no more."""


class Browser:
    """One page of a browser, and what it complained about."""

    def __init__(self, executable: str, profile: Path) -> None:
        import fcntl  # which not every platform has, and those have no such pipe

        (their_in, own_out), (own_in, their_out) = os.pipe(), os.pipe()
        # Out of the way of 3 and 4, which the browser expects.
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in (their_in, their_out)]
        null = os.open(os.devnull, os.O_RDWR)
        places = [(os.POSIX_SPAWN_DUP2, null, number) for number in (0, 1, 2)]
        places += [(os.POSIX_SPAWN_DUP2, end, number) for end, number in zip(ends, (3, 4), strict=True)]
        self._process = os.posix_spawn(
            executable,
            [executable, *FLAGS, f"--user-data-dir={profile}", "about:blank"],
            dict(os.environ),
            file_actions=places,
            setpgroup=0,
        )
        for end in (their_in, their_out, *ends, null):
            os.close(end)
        self._own_in, self._own_out = own_in, own_out
        self._buffer, self._count, self._metering, self.complaints = b"", 0, False, list[str]()
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self._call(f"{domain}.enable", session=True)

    def open(self, address: str) -> None:
        """Load a page from scratch, even if only the end of the address is new."""
        self.leave()
        self._call("Page.navigate", session=True, url=address)
        self.wait_for("location.href !== 'about:blank' && document.readyState === 'complete'")

    def leave(self) -> None:
        """Show nothing."""
        self._call("Page.navigate", session=True, url="about:blank")
        self.wait_for("location.href === 'about:blank' && document.readyState === 'complete'")

    def ask(self, expression: str) -> Any:
        """The value of an expression in the page; promises are waited for."""
        result = self._call("Runtime.evaluate", session=True, expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise AssertionError(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def wait_for(self, expression: str) -> None:
        """Until an expression is true."""
        until = time.monotonic() + PATIENCE
        while not self.ask(f"Boolean({expression})"):
            assert time.monotonic() < until, f"never came true: {expression}"
            time.sleep(0.05)

    def look(self, scheme: str, width: int = 1400, height: int = 1000, media: str = "") -> None:
        """Have a window of some size on a screen, or on paper, that prefers light or dark."""
        self._call("Emulation.setEmulatedMedia", session=True, media=media, features=[{"name": "prefers-color-scheme", "value": scheme}])
        self._call("Emulation.setDeviceMetricsOverride", session=True, width=width, height=height, deviceScaleFactor=1, mobile=False)

    def busy_seconds(self) -> float:
        """Processor time that the page has used so far for scripts, style and layout, which other programs' load does not change much."""
        if not self._metering:
            self._call("Performance.enable", session=True, timeDomain="threadTicks")
            self._metering = True
        found = {metric["name"]: metric["value"] for metric in self._call("Performance.getMetrics", session=True)["metrics"]}
        return sum(found[f"{name}Duration"] for name in ("Script", "RecalcStyle", "Layout"))

    def screenshot(self) -> bytes:
        """What is to be seen, as PNG."""
        return base64.b64decode(self._call("Page.captureScreenshot", session=True)["data"])

    def close(self) -> None:
        """End the browser with all its processes."""
        with contextlib.suppress(OSError):
            self._send({"id": 0, "method": "Browser.close"})
        until = time.monotonic() + 10
        while os.waitpid(self._process, os.WNOHANG) == (0, 0):
            if time.monotonic() > until:
                os.killpg(self._process, signal.SIGKILL)
                os.waitpid(self._process, 0)
                break
            time.sleep(0.05)
        os.close(self._own_in)
        os.close(self._own_out)

    def _call(self, method: str, session: bool = False, **parameters: Any) -> Any:
        self._count += 1
        message = {"id": self._count, "method": method, "params": parameters}
        self._send(message | ({"sessionId": self._session} if session else {}))
        for answer in self._messages():
            if answer.get("id") == self._count:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]
            self._note(answer)
        raise BrowserEnded("the browser has ended")

    def _note(self, event: dict[str, Any]) -> None:
        """Keep what a developer would see as an error or a warning in the console."""
        inside = event.get("params", {})
        match event.get("method"):
            case "Runtime.exceptionThrown":
                self.complaints.append(str(inside["exceptionDetails"].get("exception", inside["exceptionDetails"])))
            case "Runtime.consoleAPICalled" if inside["type"] in ("error", "warning", "assert"):
                self.complaints.append(str(inside["args"]))
            case "Log.entryAdded" if inside["entry"]["level"] in ("error", "warning"):
                self.complaints.append(inside["entry"]["text"])
            case _:
                pass

    def _send(self, message: dict[str, Any]) -> None:
        os.write(self._own_out, json.dumps(message).encode() + b"\0")

    def _messages(self) -> Iterator[dict[str, Any]]:
        while True:
            message, zero, rest = self._buffer.partition(b"\0")
            if zero:
                self._buffer = rest
                yield json.loads(message)
            elif received := os.read(self._own_in, 1 << 16):
                self._buffer += received
            else:
                return
