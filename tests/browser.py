"""Headless Chromium, controlled through a pipe, so that it opens no port."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

_SECONDS = 60.0
# Disables updates, the GPU and other background activity.
_QUIET = (
    "--headless=new",
    "--no-sandbox",  # tests may run as root, in a container
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)


class Browser:
    def __init__(self, process: subprocess.Popen, to_it: int, from_it: int) -> None:
        self._process, self._to_it, self._from_it = process, to_it, from_it
        self._read, self._number, self._session = b"", 0, ""
        self.events: list[dict[str, Any]] = []
        target = self.do("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.do("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.do(f"{domain}.enable")

    def do(self, method: str, **params: Any) -> dict[str, Any]:
        """Sends a command of the DevTools protocol and waits for its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to_it, json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != self._number:
            self.events.append(answer)
        assert "error" not in answer, f"{method}: {answer['error']}"
        return answer["result"]

    def open(self, page: Path | str, width: int, height: int = 900, dark: bool = False) -> None:
        """Opens a page, or an address, at a width in pixels, and waits until it is loaded."""
        self.do(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.do("Emulation.setEmulatedMedia", features=[scheme])
        self.events.clear()
        self.do("Page.navigate", url=page if isinstance(page, str) else page.resolve().as_uri())
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next())

    def evaluate(self, script: str) -> Any:
        answer = self.do("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def console_messages(self) -> list[str]:
        """Returns the console's messages and exceptions since the page was opened."""
        kinds = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")
        return [json.dumps(event["params"]) for event in self.events if event["method"] in kinds]

    def requests(self) -> list[str]:
        """Returns the requested URLs since the page was opened, except `data:`."""
        sent = [event["params"] for event in self.events if event["method"] == "Network.requestWillBeSent"]
        return [each["request"]["url"] for each in sent if not each["request"]["url"].startswith("data:")]

    def _next(self) -> dict[str, Any]:
        deadline = time.monotonic() + _SECONDS
        while b"\0" not in self._read:
            ready, _, _ = select.select([self._from_it], [], [], max(deadline - time.monotonic(), 0))
            assert ready, f"the browser has not answered for {_SECONDS:.0f} s"
            got = os.read(self._from_it, 1 << 20)
            assert got, f"the browser has ended with {self._process.wait()}"
            self._read += got
        message, _, self._read = self._read.partition(b"\0")
        return json.loads(message)


@contextlib.contextmanager
def open_browser(home: Path) -> Iterator[Browser]:
    """Starts Chromium, and ends it with all its processes; skips the test if it is not installed."""
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("no chromium (Debian: apt-get install chromium)")
    read_commands, to_it = os.pipe()
    from_it, write_answers = os.pipe()

    def inherit_pipes() -> None:
        # It reads from 3 and writes to 4; copies first, because one of the two may have the other's number.
        commands, answers = os.dup(read_commands), os.dup(write_answers)
        os.dup2(commands, 3)
        os.dup2(answers, 4)

    process = subprocess.Popen(
        [program, *_QUIET, f"--user-data-dir={home}"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        close_fds=False,
        preexec_fn=inherit_pipes,
        env={**os.environ, "HOME": str(home)},
    )
    os.close(read_commands)
    os.close(write_answers)
    try:
        browser = Browser(process, to_it, from_it)
        yield browser
        browser._session = ""
        browser.do("Browser.close")
        process.wait(timeout=_SECONDS)
    finally:
        os.close(to_it)
        os.close(from_it)
        if process.poll() is None:
            process.kill()
            process.wait()
