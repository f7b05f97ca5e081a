"""A real browser without a window, driven over a pipe: what it shows, says and asks for. Never skipped in CI."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

Json = dict[str, Any]

_FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *(
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-dev-shm-usage",
        "--disable-extensions",
    ),
    *("--remote-debugging-pipe", "--hide-scrollbars", "--force-color-profile=srgb", "--mute-audio"),
)
# The browser reads commands from descriptor 3 and writes answers to 4; the pipes' ends are moved out of the way first.
_START = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(word), fcntl.F_DUPFD, 50) for word in sys.argv[1:3]]
for end, number in zip(ends, (3, 4)):
    os.dup2(end, number)
os.execv(sys.argv[3], sys.argv[3:])
"""
_PATIENCE = 60  # seconds, for an answer; nothing is judged by it


class Browser:
    """One browser with one page. complaints: errors, warnings and violations; requests: what it asked for."""

    def __init__(self, folder: Path) -> None:
        binary = needed()
        command_in, self._to = os.pipe()
        self._from, answers_out = os.pipe()
        flags = [*_FLAGS, f"--user-data-dir={folder}", "about:blank"]
        self._child = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _START, str(command_in), str(answers_out), binary, *flags],
            pass_fds=(command_in, answers_out),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(command_in)
        os.close(answers_out)
        self._rest = b""
        self._number = 0
        self._session = ""
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self._loaded = 0
        targets = self("Target.getTargets")["targetInfos"]
        target = next(one["targetId"] for one in targets if one["type"] == "page")
        self._session = self("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network", "Audits"):
            self(f"{domain}.enable")

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._session = ""
        try:
            self("Browser.close")
        except (OSError, AssertionError):
            self._child.kill()
        os.close(self._to)
        os.close(self._from)
        self._child.wait(30)

    def __call__(self, method: str, **parameters: Any) -> Json:
        """Send a command; gives its result."""
        self._number += 1
        number = self._number
        message: Json = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._to, data) :]
        while True:
            found = self._next()
            if found.get("id") == number:
                assert "error" not in found, (method, found["error"])
                result: Json = found["result"]
                return result

    def _next(self) -> Json:
        deadline = time.monotonic() + _PATIENCE
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._from], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, "the browser does not answer"
            part = os.read(self._from, 1 << 20)
            assert part, "the browser has gone"
            self._rest += part
        line, _, self._rest = self._rest.partition(b"\0")
        found: Json = json.loads(line)
        self._note(str(found.get("method", "")), found.get("params", {}))
        return found

    def _note(self, method: str, told: Json) -> None:
        if method == "Page.loadEventFired":
            self._loaded += 1
        elif method == "Network.requestWillBeSent":
            self.requests.append(told["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(told["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and told["type"] in ("error", "warning", "assert"):
            self.complaints.append(json.dumps(told["args"]))
        elif method == "Log.entryAdded" and told["entry"]["level"] in ("error", "warning"):
            self.complaints.append(told["entry"]["text"])
        elif method == "Audits.issueAdded" and "ContentSecurityPolicy" in told["issue"]["code"]:
            self.complaints.append(json.dumps(told["issue"]))
        elif method == "Page.javascriptDialogOpening":
            self.complaints.append(f"a dialog: {told['message']}")

    def show(self, width: int, height: int = 900, *, dark: bool = False, media: str = "") -> None:
        """Set the window: a phone below 600 pixels."""
        self("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        features = [
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
            {"name": "prefers-reduced-motion", "value": "reduce"},
        ]
        self("Emulation.setEmulatedMedia", media=media, features=features)

    def open(self, page: Path | str, fragment: str = "") -> None:
        """Open a page anew, a file or an address, and wait until it has loaded."""
        address = page if isinstance(page, str) else page.as_uri()
        for url in ("about:blank", address + fragment):  # to the same place it would not be loaded again
            before = self._loaded
            told = self("Page.navigate", url=url)
            assert "errorText" not in told, told
            while self._loaded == before:
                self._next()

    def tell(self, expression: str) -> Any:
        """Give what an expression comes to in the page; a promise is waited for."""
        told = self("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in told, told["exceptionDetails"]
        return told["result"].get("value")

    def press(self, key: str, *, times: int = 1, shift: bool = False) -> None:
        codes = {"Tab": 9, "Enter": 13, " ": 32, "ArrowDown": 40, "Escape": 27}
        known: Json = {"key": key, "code": "Space" if key == " " else key, "windowsVirtualKeyCode": codes[key]}
        if key in ("Enter", " "):
            known["text"] = "\r" if key == "Enter" else " "
        for _ in range(times):
            self("Input.dispatchKeyEvent", type="keyDown", modifiers=8 if shift else 0, **known)
            self("Input.dispatchKeyEvent", type="keyUp", modifiers=8 if shift else 0, **known)

    def type(self, text: str) -> None:
        self("Input.insertText", text=text)

    def picture(self, path: Path, *, whole: bool = True) -> None:
        told = self("Page.captureScreenshot", format="png", captureBeyondViewport=whole, **self._clip(whole=whole))
        path.write_bytes(base64.b64decode(told["data"]))

    def _clip(self, *, whole: bool) -> Json:
        if not whole:
            return {}
        size = self("Page.getLayoutMetrics")["cssContentSize"]
        return {"clip": {"x": 0, "y": 0, "width": size["width"], "height": min(size["height"], 12_000), "scale": 1}}


def needed() -> str:
    """Give the browser's program; without one the test is skipped, in CI it fails."""
    found = shutil.which("chromium") or shutil.which("chromium-browser") or ""
    if not found:
        if os.environ.get("CI") == "true":
            pytest.fail("chromium is not here, and CI must not pass without it")
        pytest.skip("chromium is not here; hint: apt-get install chromium")
    return found
