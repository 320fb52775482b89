"""Files: who may read what belongs to people, damaged ones end in errors, and results are whole or not there."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import zipfile
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from analytic import AFL, ClientRows, ModelFileError, RowFormat, fit_pooled, save_model
from analytic.model_files import model_from_bytes, model_to_bytes
from analytic_secagg.console.output_files import OutputFile, refuse_same_file
from analytic_secagg.errors import DataError, FederationError, OutputError, UsageError
from analytic_secagg.site.key_files import write_secret
from analytic_secagg.site.source import read_rows
from analytic_secagg.site.table import TableSchema
from secagg import FileStore

LEARNER = AFL(n_features=2, n_targets=2, feature_format=RowFormat.parse("Q3.8"), max_rows=10)
ROWS = ClientRows(np.arange(8.0).reshape(4, 2) / 4, np.arange(4) % 2)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_models_and_private_results_are_their_owners_alone(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        save_model(tmp_path / "model", LEARNER, fit_pooled(LEARNER, ROWS))
        OutputFile(tmp_path / "totals", private=True).fill(lambda file: file.write(b"x"))
        OutputFile(tmp_path / "page").write("x")
    finally:
        os.umask(before)
    assert {name: mode_of(tmp_path / name) for name in ("model", "totals", "page")} == {
        "model": 0o600,
        "totals": 0o600,
        "page": 0o644,
    }


def test_a_store_writes_through_nothing_that_lies_in_its_place(tmp_path: Path) -> None:
    """A leftover that others may read, or a link elsewhere, where the store writes the new state first."""
    store, other = FileStore(tmp_path / "state"), tmp_path / "other"
    other.write_bytes(b"not the store's")
    (tmp_path / "state.new").symlink_to(other)
    store.save(b"secret")
    assert other.read_bytes() == b"not the store's"
    (tmp_path / "state.new").write_bytes(b"left by a crash")
    (tmp_path / "state.new").chmod(0o644)
    store.save(b"secret, later")
    assert (store.path.read_bytes(), mode_of(store.path)) == (b"secret, later", 0o600)


@pytest.mark.skipif(sys.platform == "win32", reason="there are no core dumps")
def test_a_process_that_reads_a_key_leaves_no_core_dump(tmp_path: Path) -> None:
    write_secret(tmp_path / "key", bytes(32))
    ask = (
        "import resource, sys; from pathlib import Path; from analytic_secagg.site.key_files import read_secret;"
        "read_secret(Path(sys.argv[1])); print(resource.getrlimit(resource.RLIMIT_CORE))"
    )
    done = subprocess.run([sys.executable, "-c", ask, tmp_path / "key"], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "(0, 0)"


def mutated(content: bytes, seed: int) -> bytes:
    """A few bytes changed, or the end cut off."""
    rng, changed = np.random.default_rng(seed), bytearray(content)
    for place in rng.integers(0, len(content), size=int(rng.integers(1, 4))):
        changed[place] = int(rng.integers(256))
    return bytes(changed[: int(rng.integers(len(content)))] if seed % 5 == 0 else changed)


@pytest.mark.parametrize("compressed", [False, True])
def test_a_damaged_archive_of_rows_is_a_data_error(compressed: bool, tmp_path: Path) -> None:
    save = np.savez_compressed if compressed else np.savez
    save(tmp_path / "rows.npz", x_train=ROWS.features, y_train=ROWS.targets)  # type: ignore[arg-type]
    good, place = (tmp_path / "rows.npz").read_bytes(), tmp_path / "damaged.npz"
    refused = 0
    for seed in range(400):
        place.write_bytes(mutated(good, seed))
        try:
            read_rows(str(place))
        except DataError:
            refused += 1
    assert refused > 100


def test_an_unknown_compression_is_a_data_error(tmp_path: Path) -> None:
    place = tmp_path / "rows.npz"
    np.savez(place, x_train=ROWS.features, y_train=ROWS.targets)
    with zipfile.ZipFile(place) as archive:
        at = archive.getinfo("x_train.npy").header_offset
    content = bytearray(place.read_bytes())
    content[at + 8] = 99
    central = content.index(b"PK\x01\x02")
    content[central + 10] = 99
    place.write_bytes(content)
    with pytest.raises(DataError):
        read_rows(str(place))


SCHEMA = """missing_values = ["?"]
[columns.size]
role = "feature"
scale = 2
[columns.kind]
role = "target"
categories = ["a", "b"]
"""


def test_a_schema_with_a_value_of_another_kind_is_refused_by_name(tmp_path: Path) -> None:
    for seed, other in enumerate(('"a"', "3", "true", "{a = 1}", "[[1]]", "1979-05-27")):
        place = tmp_path / f"{seed}.toml"
        for line in SCHEMA.splitlines():
            if "=" in line:
                key = line.split(" = ")[0]
                place.write_text(SCHEMA.replace(line, f"{key} = {other}"))
                with suppress(FederationError):  # some values are as good as the ones before
                    TableSchema.read(place)


@pytest.mark.parametrize("number", ["NaN", "1e999", "-Infinity"])
def test_a_model_that_describes_itself_by_no_finite_number_is_refused(number: str) -> None:
    content = model_to_bytes(LEARNER, fit_pooled(LEARNER, ROWS))
    size = int.from_bytes(content[:8], "little")
    header, arrays = json.loads(content[8 : 8 + size]), content[8 + size :]
    (entry,) = header["__metadata__"]
    said = json.loads(header["__metadata__"][entry])
    header["__metadata__"][entry] = json.dumps(said | {"more": 0.5}).replace("0.5", number)
    changed = json.dumps(header).encode()
    changed += b" " * (-len(changed) % 8)
    with pytest.raises(ModelFileError, match="a number that is not finite"):
        model_from_bytes(len(changed).to_bytes(8, "little") + changed + arrays)


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
