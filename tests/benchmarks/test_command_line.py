"""Wrong input, the help and its examples, and signals while a session runs in a process of its own."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.__main__ import main
from benchmarks.command import COMMAND

ROOT = Path(__file__).resolve().parents[2]
SIGNALS = {signal.SIGINT: 130, signal.SIGTERM: 143}

WRONG = [
    ("--quik", "unknown option --quik: did you mean --quick\\?; see python -m benchmarks --help"),
    ("--runs 4", "'--runs': needs a whole number of at least 5, not '4'"),
    ("--sections a,z", "'--sections': needs letters out of a,b,c,d,e,f,g,h,i,j,k with commas between, not 'a,z'"),
    ("--json folder", "it is a folder; name a file in it"),
    ("--page page.md", "--page: needs a page with a line '## Results', below which it is replaced; .*page.md has none"),
]


@pytest.mark.parametrize(("text", "message"), WRONG, ids=lambda value: value[:20])
def test_wrong_input_is_one_message_code_2_and_no_file(
    text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    assert main(text.split()) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("error: ")
    assert output.err.count("\n") == 1
    assert re.search(message, output.err)
    assert os.listdir(tmp_path) == ["folder"]


def examples() -> list[str]:
    return re.findall(r"^  python -m benchmarks (.*)$", str(COMMAND.epilog), flags=re.M)


@pytest.mark.parametrize("text", examples())
def test_the_parser_takes_every_example(text: str) -> None:
    COMMAND.make_context("benchmarks", shlex.split(text))


def test_the_short_example_works(capsys: pytest.CaptureFixture[str]) -> None:
    (short,) = set(examples()) - {"--json bench.json --page docs/explanation/performance.md", "--sections a,c,d"}
    assert main(shlex.split(short)) == 0
    assert re.findall(r"^### (\w)\.", capsys.readouterr().out, flags=re.M) == ["c", "e"]


def is_gone(group: int) -> bool:
    """Whether a process group ends within seconds. A killed child that the second signal orphaned waits for init."""
    for _ in range(200):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


@pytest.fixture
def _interruptible() -> Iterator[None]:
    """Let children hear SIGINT, which a shell's background jobs ignore."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.usefixtures("_interruptible")
def test_a_signal_while_a_session_runs(number: signal.Signals, tmp_path: Path) -> None:
    """One process is told, twice; it and the session that it started are gone, and no file is there."""
    with subprocess.Popen(
        [sys.executable, "-m", "benchmarks", "--sections", "g", "--json", str(tmp_path / "out.json")],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout
        assert process.stdout.readline().startswith("|")  # the machine's table comes first
        process.send_signal(number)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate()
    assert process.returncode in (SIGNALS[number], SIGNALS[signal.SIGINT])
    assert errors == "stopped; no file is half-written\n"
    assert os.listdir(tmp_path) == []
    assert is_gone(process.pid)
