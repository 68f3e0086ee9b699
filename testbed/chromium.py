"""Debian's Chromium without a window: a test opens a page, presses keys, and reads the computed result.

Used by the tests of the console. It is driven by the DevTools protocol over two pipes, so it opens no port, and it
resolves no name: a page that asks another host fails, and the request is in `requests`.
"""

from __future__ import annotations

import base64
import json
import os
import select
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

SECONDS = 20.0
"""How long an answer may take."""
_FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions"),
    *("--disable-default-apps", "--no-default-browser-check", "--hide-scrollbars", "--window-size=1280,900"),
    *("--remote-debugging-pipe", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost"),
)
_KEYS = {"Tab": 9, "Enter": 13, "/": 191}


class BrowserError(Exception):
    """The browser does not answer, or a script of the test failed."""


class Chromium:
    """A browser with one page.

    Attributes:
        requests: the URLs that the page has asked for.
        complaints: exceptions, violations of the content policy and other errors of the page.
        dialogs: the texts of dialogs, such as a script's alert.
    """

    def __init__(self, folder: Path) -> None:
        """Prepare, start nothing.

        Args:
            folder: where its profile is.
        """
        self._folder = folder
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self.dialogs: list[str] = []
        self._buffer = b""
        self._number = 0
        self._session = ""
        self._answers: dict[int, Any] = {}

    def __enter__(self) -> Self:
        """Start it, and open an empty page."""
        to_read, self._to = os.pipe()
        self._from, to_write = os.pipe()
        # The browser reads its file descriptor 3 and writes 4, and only bash can assign these numbers in the child.
        command = f'exec "$@" 3<&{to_read} 4>&{to_write}'
        self._child = subprocess.Popen(
            ["bash", "-c", command, "bash", "chromium", *_FLAGS, f"--user-data-dir={self._folder}", "about:blank"],
            pass_fds=(to_read, to_write),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(to_read)
        os.close(to_write)
        try:
            self._attach()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End it, with all of its processes."""
        self._end()

    def _attach(self) -> None:
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def _end(self) -> None:
        os.close(self._to)  # it ends when its pipe is closed
        try:
            self._child.wait(SECONDS)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        os.close(self._from)

    def open(self, url: str) -> None:
        """Open a page, and wait until it is loaded."""
        self.evaluate("window.isOld = true")
        self.call("Page.navigate", url=url)
        self.wait("!window.isOld && document.readyState === 'complete' && location.href !== 'about:blank'")

    def evaluate(self, script: str) -> Any:
        """The value of an expression of the page.

        Raises:
            BrowserError: it throws.
        """
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise BrowserError(f"{script}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def wait(self, script: str, seconds: float = SECONDS) -> None:
        """Wait until an expression is true; a page that is being replaced is asked again.

        Raises:
            BrowserError: it is not in time.
        """
        end = time.monotonic() + seconds
        while True:
            try:
                if self.evaluate(f"!!({script})"):
                    return
            except BrowserError:
                if time.monotonic() > end:
                    raise
            if time.monotonic() > end:
                raise BrowserError(f"not true within {seconds} s: {script}")
            time.sleep(0.03)

    def press(self, key: str) -> None:
        """Press a key and let it go."""
        code = {"key": key, "code": key, "windowsVirtualKeyCode": _KEYS[key]}
        text = {"text": {"Enter": "\r"}.get(key, key)} if len(key) == 1 or key == "Enter" else {}
        self.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", **code, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", **code)

    def prefer(self, scheme: str) -> None:
        """Show pages as for a reader who prefers a `light` or a `dark` scheme."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", features=features)

    def screenshot(self, path: Path) -> None:
        """Write what is seen to a PNG file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def call(self, method: str, **parameters: Any) -> Any:
        """Call a method of the protocol.

        Raises:
            BrowserError: the browser refuses, or does not answer in time.
        """
        self._number += 1
        number = self._number
        message = {"id": number, "method": method, "params": parameters}
        if self._session and not method.startswith("Target."):
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        self._read_until(lambda: number in self._answers, method)
        answer = self._answers.pop(number)
        if "error" in answer:
            raise BrowserError(f"{method}: {answer['error']}")
        return answer["result"]

    def _read_until(self, met: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + SECONDS
        while not met():
            readable, _, _ = select.select([self._from], [], [], max(0.0, end - time.monotonic()))
            data = os.read(self._from, 1 << 20) if readable else b""
            if not data:
                raise BrowserError(f"{what}: the browser {'has ended' if readable else 'does not answer'}")
            *messages, self._buffer = (self._buffer + data).split(b"\0")
            for message in messages:
                self._take(json.loads(message))

    def _take(self, message: Any) -> None:
        """Note an answer or an event."""
        parameters = message.get("params", {})
        if "id" in message:
            self._answers[message["id"]] = message
        elif message["method"] == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])
        elif message["method"] == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(parameters["exceptionDetails"]))
        elif message["method"] == "Log.entryAdded" and parameters["entry"]["level"] == "error":
            self.complaints.append(f"{parameters['entry']['text']} {parameters['entry'].get('url', '')}")
        elif message["method"] == "Page.javascriptDialogOpening":
            self.dialogs.append(parameters["message"])
