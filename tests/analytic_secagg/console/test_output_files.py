"""Result files: whole or not at all, and complaints before the work."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from analytic_secagg.console.output_files import OutputFile, refuse_same_file
from analytic_secagg.errors import OutputError, UsageError


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    path.write_text("before, and longer than what comes")
    OutputFile(path).write("after ü")
    assert path.read_text(encoding="utf-8") == "after ü"
    assert os.listdir(tmp_path) == ["out.json"]


def test_bytes_are_written_in_the_same_way(tmp_path: Path) -> None:
    path = tmp_path / "out.npy"
    path.write_bytes(b"before")
    OutputFile(path).fill(lambda file: file.write(b"\xff\x00"))
    assert path.read_bytes() == b"\xff\x00"
    with pytest.raises(ZeroDivisionError):
        OutputFile(path).fill(lambda file: file.write(bytes(1 // len(b""))))
    assert path.read_bytes() == b"\xff\x00"
    assert os.listdir(tmp_path) == ["out.npy"]


def test_a_failure_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    path.write_text("before")
    with pytest.raises(UnicodeEncodeError):
        OutputFile(path).write("half of it, then what no file can hold \ud800")
    assert path.read_text() == "before"
    assert os.listdir(tmp_path) == ["out.json"]


def test_places_that_cannot_be_written_are_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"the folder .*missing does not exist; create it first"):
        OutputFile(tmp_path / "missing" / "out.json")
    with pytest.raises(OutputError, match="it is a folder; name a file in it"):
        OutputFile(tmp_path)
    with pytest.raises(OutputError, match="not a file; name a file"):
        OutputFile(Path(os.devnull))
    with pytest.raises(OutputError, match="File name too long"):
        OutputFile(tmp_path / ("n" * 250))
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="does not exist"):
        OutputFile(tmp_path / "file" / "out.json")


def test_a_folder_that_goes_away_meanwhile_is_one_clear_error(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    file = OutputFile(folder / "out.json")
    folder.rmdir()
    with pytest.raises(OutputError, match=r"cannot write .*out.json: No such file"):
        file.write("text")


def test_one_file_for_two_arguments_is_refused(tmp_path: Path) -> None:
    refuse_same_file({"--json": tmp_path / "a", "--html": tmp_path / "b", "--plot": None})
    with pytest.raises(UsageError, match="--json and --html both name"):
        refuse_same_file({"--json": tmp_path / "a", "--html": tmp_path / "b" / ".." / "a"})
