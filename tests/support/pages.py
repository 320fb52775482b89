"""Pages as their readers meet them: parsed, and opened in a real browser."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, BinaryIO

import pytest

CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
OFFLINE = ("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-quic")
OPTIONS = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", *OFFLINE, "--remote-debugging-pipe")


class Page(HTMLParser):
    """Enough of a DOM: tags, cells of the audit's table, headings without a scope, pictures and what a page loads."""

    VOID = frozenset({"meta", "img", "br", "link", "use", "path", "input", "hr"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.cells: dict[tuple[str, str], str] = {}
        self.pictures: list[dict[str, str | None]] = []
        self.unscoped: list[str] = []
        self.loaded: list[str] = []
        self.labels: list[str] = []
        self.tags: list[str] = []
        self.open: list[str] = []
        self._cell: tuple[str, str] | None = None
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if tag not in self.VOID:
            self.open.append(tag)
        if tag == "td" and "data-attack" in found:
            self._cell = str(found["data-attack"]), str(found["data-exposure"])
            self.cells[self._cell] = ""
        if tag == "th" and "scope" not in found:
            self.unscoped.append(str(found))
        if tag == "img":
            self.pictures.append(found)
        if tag == "svg":
            self.labels.append(found.get("aria-label") or "")
        self._note(tag, attrs)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._note(tag, attrs)

    def _note(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        loading = ("src", "href", "xlink:href", "srcset", "data", "action")
        self.loaded += [value for name, value in attrs if name in loading and value and not value.startswith("#")]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
        if tag == "td":
            self._cell = None

    def handle_data(self, data: str) -> None:
        if self._cell:
            self.cells[self._cell] += data


@dataclass
class Browser:
    """One tab of a headless Chromium, spoken to through two pipes in the DevTools protocol."""

    to_browser: BinaryIO
    from_browser: BinaryIO
    events: list[dict[str, Any]] = field(default_factory=list)
    session: str | None = None
    calls: int = 0

    def call(self, method: str, **parameters: Any) -> Any:
        answer = self._answer(method, **parameters)
        assert "error" not in answer, answer
        return answer["result"]

    def _answer(self, method: str, **parameters: Any) -> dict[str, Any]:
        self.calls += 1
        message = {"id": self.calls, "method": method, "params": parameters}
        self.to_browser.write(json.dumps(message | ({"sessionId": self.session} if self.session else {})).encode())
        self.to_browser.write(b"\0")
        self.to_browser.flush()
        while (answer := self._read()).get("id") != self.calls:
            pass
        return answer

    def open(self, file: Path) -> None:
        self.visit(file.as_uri())

    def visit(self, address: str) -> None:
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.call(f"{domain}.enable")
        self.call("Page.navigate", url=address)
        while not self.seen("Page.loadEventFired"):
            self._read()

    def seen(self, *methods: str) -> list[dict[str, Any]]:
        return [event["params"] for event in self.events if event.get("method") in methods]

    def evaluate(self, expression: str) -> Any:
        """Works although the page itself allows no scripts."""
        for _ in range(100):
            answer = self._answer("Runtime.evaluate", expression=expression, returnByValue=True)
            if answer.get("error", {}).get("message") != "Inspected target navigated or closed":  # a page sent it on
                break
        assert "error" not in answer, answer
        assert "exceptionDetails" not in answer["result"], answer
        return answer["result"]["result"].get("value")

    def show_at(self, width: int, *, scheme: str = "light", media: str = "screen") -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", media=media, features=features)

    def _read(self) -> dict[str, Any]:
        text = bytearray()
        while (byte := self.from_browser.read(1)) != b"\0":
            assert byte, "chromium went away"
            text += byte
        message: dict[str, Any] = json.loads(text)
        self.events.append(message)
        return message


@contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    assert CHROMIUM is not None
    (its_input, to_browser), (from_browser, its_output) = os.pipe(), os.pipe()
    pipes = f'exec "$@" 3<&{its_input} 4>&{its_output}'
    process = subprocess.Popen(
        ["bash", "-c", pipes, "bash", CHROMIUM, *OPTIONS, f"--user-data-dir={profile}"],
        pass_fds=(its_input, its_output),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(its_input)
    os.close(its_output)
    with os.fdopen(to_browser, "wb") as writer, os.fdopen(from_browser, "rb") as reader:
        try:
            yield Browser(to_browser=writer, from_browser=reader)
        finally:
            process.terminate()
            process.wait(timeout=30)


needs_chromium = pytest.mark.skipif(
    CHROMIUM is None, reason="no chromium on this machine: apt-get install chromium opens the page too"
)
