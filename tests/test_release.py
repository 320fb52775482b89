"""What a user installs: wheel and sdist hold what they should, and run the main job where nothing else is installed."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from support.extras import needs

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("secagg", "analytic", "analytic_secagg", "simulations")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

NEEDED_BY_EXTRAS = (
    "torch",
    "torchvision",
    "tenseal",
    "opacus",
    "dp_accounting",
    "flwr",
    "nvflare",
    "pytest",
    "coverage",
    "rich",
    "matplotlib",
    "PIL",
)
"""Must be missing from the clean environment, or what it shows would be worth nothing."""

IMPORT_EVERYTHING = """
import importlib, importlib.util, json, pkgutil, sys
missing = {}
for package in ("secagg", "analytic", "analytic_secagg", "simulations"):
    found = pkgutil.walk_packages(importlib.import_module(package).__path__, package + ".")
    for name in (package, *(module.name for module in found)):
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            missing[name] = error.name
unwanted = [name for name in sys.argv[1:] if importlib.util.find_spec(name)]
print(json.dumps({"missing": missing, "unwanted": unwanted, "modules": sorted(
    name for name in sys.modules if name.split(".")[0] in ("secagg", "analytic", "analytic_secagg", "simulations"))}))
"""

SHOW_ORIGIN = "import importlib.metadata, secagg; print(importlib.metadata.version('analytic-secagg'), secagg.__file__)"


def files_of(root: Path) -> set[str]:
    """Files by relative path, without those that git would ignore; git itself need not be there."""
    ignored = [line.strip("/") for line in (ROOT / ".gitignore").read_text(encoding="utf-8").split()]
    skipped = shutil.ignore_patterns(".git", *ignored)
    found = set()
    for folder, folders, files in os.walk(root):
        leave = skipped(folder, [*folders, *files])
        folders[:] = [name for name in folders if name not in leave]
        found |= {str(Path(folder, name).relative_to(root)) for name in files if name not in leave}
    return found


def under(files: set[str], *folders: str) -> set[str]:
    return {name for name in files if name.startswith(tuple(f"{folder}/" for folder in folders))}


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    """What the command prints; how it failed otherwise. Nothing of this environment reaches it but the named."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "COVERAGE", "COV_"))}
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, env=kept | environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


@dataclass(frozen=True)
class Built:
    """What `python -m build` made, beside the sources that it was made from."""

    folder: Path

    @property
    def sources(self) -> set[str]:
        return files_of(self.folder / "sources")

    @property
    def wheel(self) -> Path:
        (path,) = (self.folder / "dist").glob("*.whl")
        return path

    @property
    def sdist(self) -> Path:
        (path,) = (self.folder / "dist").glob("*.tar.gz")
        return path


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """From a copy, since setuptools leaves folders beside the sources; the wheel is built from the sdist alone."""
    needs("build")
    needs("setuptools")
    folder = tmp_path_factory.mktemp("built")
    for name in files_of(ROOT):
        copy = folder / "sources" / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, copy)
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder / "dist", cwd=folder / "sources")
    return Built(folder)


def test_the_wheel_holds_the_packages_and_nothing_else(built: Built) -> None:
    files = set(zipfile.ZipFile(built.wheel).namelist())
    about = f"analytic_secagg-{PROJECT['version']}.dist-info"
    assert under(files, *PACKAGES) == under(built.sources, *PACKAGES)
    assert {f"{package}/py.typed" for package in PACKAGES} <= files
    assert {name.split("/")[0] for name in files} == {*PACKAGES, about}
    assert f"{about}/licenses/LICENSE" in files


def test_the_sdist_holds_sources_tests_and_documents(built: Built) -> None:
    root = f"analytic_secagg-{PROJECT['version']}/"
    with tarfile.open(built.sdist) as archive:
        files = {member.name.removeprefix(root) for member in archive if member.isfile()}
    rooms = (*PACKAGES, "benchmarks", "docs", "tests")
    assert under(files, *rooms) == under(built.sources, *rooms)
    pages = {name for name in built.sources if "/" not in name and name.endswith((".md", ".cff"))}
    assert {*pages, "LICENSE", "Makefile", "pyproject.toml"} <= files


def test_a_clean_environment_runs_the_main_job(built: Built, tmp_path: Path) -> None:
    """Without extras what a site needs loads; with `simulations` three modes make one model.

    From the wheel, which was built from the sdist.
    """
    nowhere = tmp_path / "empty"
    nowhere.mkdir()
    venv.create(tmp_path / "venv", with_pip=True, symlinks=True)
    bin_ = tmp_path / "venv" / "bin"
    pip = (bin_ / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile")

    run(*pip, built.wheel, cwd=nowhere)
    check_imports(bin_, nowhere, built.sources)
    refused = subprocess.run(
        [bin_ / "analytic-secagg", "compare"], cwd=nowhere, capture_output=True, text=True, check=False
    )
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "pip install '.[simulations]'" in refused.stderr
    run(*pip, f"{built.wheel}[simulations]", cwd=nowhere)
    check_main_job(bin_, nowhere)


@pytest.mark.slow  # four builds, in half a minute
@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="needs the repository: a release is built from a commit")
def test_a_commit_has_the_same_bytes_wherever_it_is_built(tmp_path: Path) -> None:
    """Other folders, at another time, in another time zone, with another umask."""
    for folder, zone, umask in (("a", "UTC", "022"), ("another/deeper", "Asia/Tokyo", "077")):
        run("git", "clone", "--quiet", ROOT, tmp_path / folder, cwd=tmp_path)
        words = f"umask {umask} && exec .ci/dist {tmp_path / zone}"
        run("bash", "-c", words, cwd=tmp_path / folder, PYTHON=sys.executable, TZ=zone)
    first, second = (
        {path.name: path.read_bytes() for path in (tmp_path / zone).rglob("*.*")} for zone in ("UTC", "Asia/Tokyo")
    )
    assert [name.rpartition(".")[2] for name in sorted(first)] == ["whl", "gz"]
    assert first == second


@pytest.mark.parametrize("engine", ["flower", "nvflare"])
def test_locked_versions_are_those_that_the_project_takes(engine: str) -> None:
    """Every requirement has one version within its bounds, every version has hashes, and torch stays out."""
    entries = (ROOT / "requirements" / f"{engine}.txt").read_text(encoding="utf-8").replace(" \\\n", "").splitlines()
    locked: dict[str, list[str]] = {}
    for entry in entries:
        found = re.fullmatch(r"(\S+)==(\S+)(?: ; .*?)?(?: +--hash=sha256:[0-9a-f]{64})+", entry)
        assert found, entry
        locked.setdefault(canonicalize_name(found[1]), []).append(found[2])
    extras = PROJECT["optional-dependencies"]
    all_needed = [Requirement(text) for text in (*PROJECT["dependencies"], *extras[engine], *extras["he"])]
    for needed in all_needed:
        assert all(version in needed.specifier for version in locked[canonicalize_name(needed.name)])
    assert "torch" not in locked
    table = (ROOT / "docs" / "reference" / "supported-versions.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\S+)` \| `(\S+)` \| (.+) \|$", table, re.MULTILINE)
    assert {name for name, *_ in rows} >= {"numpy", "cryptography", engine.replace("flower", "flwr")}
    for name, taken, versions in rows:
        bounds = {str(needed.specifier) for needed in all_needed if needed.name == name}
        assert bounds <= {str(SpecifierSet(taken))}
        assert locked.get(name, versions.split(", ")) == versions.split(", ")
    (page,) = (ROOT / "docs" / "how-to").glob(f"deploy-*-{engine}.md")
    assert f"pip install --require-hashes -r requirements/{engine}.txt" in page.read_text(encoding="utf-8")


def check_imports(bin_: Path, cwd: Path, sources: set[str]) -> None:
    """All modules load but those that are written in an extra's own classes or draw, and no extra is there."""
    found = json.loads(run(bin_ / "python", "-c", IMPORT_EVERYTHING, *NEEDED_BY_EXTRAS, cwd=cwd))
    assert found["unwanted"] == []
    places = {"flwr": "analytic_secagg.flower.", "nvflare": "analytic_secagg.nvflare."}
    places |= dict.fromkeys(("rich", "matplotlib", "PIL"), "simulations.")
    assert all(name.startswith(places[wanted]) for name, wanted in found["missing"].items())
    paths = {name for name in under(sources, *PACKAGES) if name.endswith(".py")}
    assert {*found["modules"], *found["missing"]} == {module_name(path) for path in paths if "/template/" not in path}


def module_name(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def check_main_job(bin_: Path, cwd: Path) -> None:
    version, origin = run(bin_ / "python", "-c", SHOW_ORIGIN, cwd=cwd).split()
    assert version == PROJECT["version"]
    assert Path(origin).is_relative_to(bin_.parent)
    modes = ("--modes", "plain,masked,committee")
    printed = run(bin_ / "analytic-secagg", "compare", "--clients", "5", "--verbose", *modes, cwd=cwd)
    assert "all 3 runs equal the pooled model of the surviving clients, bit for bit" in printed
    assert re.search(r"^one weights hash in all runs: [0-9a-f]{64}$", printed, re.MULTILINE)
    found = run(bin_ / "python", "-m", "analytic_secagg", "doctor", cwd=cwd)
    assert re.search(r"^ok   code: all \d{3} files are those of the wheel that was installed$", found, re.MULTILINE)
    assert list(cwd.iterdir()) == []


def test_every_place_names_one_version() -> None:
    """`pyproject.toml` says it; all others repeat it."""
    version = PROJECT["version"]
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert metadata.version("analytic-secagg") == version
    assert re.findall(r"^## \[(\d\S*)\] - \d{4}-\d\d-\d\d$", changelog, re.MULTILINE)[0] == version
    assert citation()["version"] == version


def citation() -> dict[str, Any]:
    found = needs("yaml").safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    return found


def test_the_citation_names_the_papers() -> None:
    page = (ROOT / "docs" / "reference" / "papers.md").read_text(encoding="utf-8")
    listed = re.findall(r"^- .*?\*(.+?)\*", page, re.MULTILINE)
    assert sorted(listed) == sorted(reference["title"] for reference in citation()["references"])
