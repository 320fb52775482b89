"""The site builds without a warning and without a network, and the tutorial works as it is printed."""

from __future__ import annotations

import importlib
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from support.extras import needs

from analytic import AFL, RowFormat
from analytic_secagg import Federation
from analytic_secagg.datasets import bundled
from analytic_secagg.modes import MODES
from secagg.masked.states import AUTHENTICATED_CLIENT, SEMI_HONEST_CLIENT, ClientState, ClientTable
from secagg.wire import MessageType

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
TUTORIALS = {
    "first-model.md": (3, {"features.npz", "model.safetensors", "report.html", "report.json"}),
    "from-rows-to-an-answer.md": (4, {"hospital-1.csv", "draft-1", "draft-2", "trial", "model.safetensors"}),
}
"""Each with its number of commands, and files that it leaves behind."""
FACES = (
    *("secagg", "secagg.committee", "secagg.encryption", "secagg.dp"),
    *("analytic", "analytic.estimators", "analytic.torch_export"),
    "analytic_secagg",
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built pages. An orphan, a dead local link or anchor, a name that is nowhere: each fails the build."""
    needs("sphinx")
    folder = tmp_path_factory.mktemp("site")
    build = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-n", "-q", "-b", "html"]
    build += ["-D", "toc_object_entries=0"]  # a third of the time goes into the contents beside the reference
    done = subprocess.run(
        [*build, "-d", str(folder / "doctrees"), str(DOCS), str(folder / "html")],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return folder / "html"


def test_every_page_is_on_the_site(site: Path) -> None:
    pages = [path for path in DOCS.rglob("*") if path.suffix in (".md", ".rst") and "_build" not in path.parts]
    assert pages
    for page in pages:
        built = (site / page.relative_to(DOCS)).with_suffix(".html")
        assert built.exists()
        assert page.suffix != ".md" or page.stem == "glossary" or 'glossary.html"><span' in built.read_text("utf-8")
        assert "{download}" not in built.read_text("utf-8"), f"{page.name} shows markup"


def test_the_site_loads_nothing_from_elsewhere(site: Path) -> None:
    """No fonts, scripts, styles or pictures of another host: reading a page tells nobody."""
    loaded = re.compile(
        r"<(?:script|img|iframe|source)[^>]+src=[\"']?(?:https?:)?//|<link[^>]+href=[\"']?(?:https?:)?//"
    )
    for page in site.rglob("*.html"):
        assert not loaded.search(page.read_text(encoding="utf-8")), page.name
    for style in site.rglob("*.css"):
        assert not re.search(r"(@import|url\()\s*[\"']?(https?:)?//", style.read_text(encoding="utf-8")), style.name


def test_public_names_are_in_the_reference(site: Path) -> None:
    """What a face hands on is documented there, once, with an anchor to link to."""
    text = "".join(page.read_text(encoding="utf-8") for page in (site / "reference" / "api").glob("*.html"))
    handed_on: dict[str, set[int]] = {}
    for face in map(importlib.import_module, FACES):
        for name in face.__all__:
            handed_on.setdefault(name, set()).add(id(getattr(face, name)))
    for name, meanings in handed_on.items():
        anchors = re.findall(rf'id="(?:secagg|analytic|analytic_secagg)(?:\.[a-z_]+)?\.{name}"', text)
        assert len(anchors) == len(meanings), f"{name} is in the reference {len(anchors)} times: {anchors}"


def test_no_letter_of_a_docstring_becomes_a_list(site: Path) -> None:
    """A parameter that is described as "d." alone is item d of a list to docutils."""
    for page in (site / "reference" / "api").glob("*.html"):
        assert not re.search(r'<ol class="(lower|upper)(alpha|roman)', page.read_text(encoding="utf-8")), page.name


def test_schemas_are_on_the_site(site: Path) -> None:
    schemas = _words(site / "reference" / "json-schemas.html")
    assert "analytic-secagg/compare" in schemas
    assert "analytic-secagg/audit" in schemas


def state_diagram(table: ClientTable) -> str:
    """A Mermaid state diagram: message received / message sent. Every fault leads to ABORTED."""
    first = f"{ClientState.READY.name} --> {ClientState.KEYS_SENT.name}"
    moves = [
        f"{state.name} --> {after.name}: {due.name} / {answer.name}" for state, (due, after, answer) in table.items()
    ]
    faults = [f"{state.name} --> {ClientState.ABORTED.name}: fault" for state in table]
    ends = [f"{state.name} --> [*]" for state in (ClientState.DONE, ClientState.ABORTED)]
    start = [f"[*] --> {ClientState.READY.name}", f"{first}: start / {MessageType.ADVERTISED_KEYS.name}"]
    return "\n    ".join(["stateDiagram-v2", *start, *moves, *faults, *ends])


def test_each_automaton_stands_once_as_it_is() -> None:
    """On the masked sum's own page; the architecture links to it."""
    pages = [page.read_text(encoding="utf-8") for page in (ROOT / "README.md", *DOCS.rglob("*.md"))]
    drawn = [diagram for text in pages for diagram in re.findall(r"^```mermaid\n(.*?)\n```", text, re.DOTALL | re.M)]
    assert drawn == [state_diagram(AUTHENTICATED_CLIENT), state_diagram(SEMI_HONEST_CLIENT)]
    architecture = (DOCS / "explanation" / "architecture.md").read_text(encoding="utf-8")
    assert "](masked-sum.md#the-automaton-of-a-client)" in architecture


def test_the_architecture_says_where_every_package_is() -> None:
    text = (DOCS / "explanation" / "architecture.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `([\w/]+)/` \|", text.split("## Where things are")[1], flags=re.MULTILINE)
    houses = ("secagg", "analytic", "analytic_secagg", "simulations", "benchmarks")
    packages = [path.parent for house in houses for path in (ROOT / house).rglob("__init__.py")]
    assert sorted(listed) == sorted([*(path.relative_to(ROOT).as_posix() for path in packages), "tests"])


def _words(page: Path) -> str:
    return re.sub(r"<[^>]+>", "", page.read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", TUTORIALS)
def test_the_tutorial_runs_as_it_is_printed(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Snippets in one namespace, commands in real processes; every line of a ``text`` block is printed by the last."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "__tutorial__"}
    printed, commands = "", 0
    text = (DOCS / "tutorials" / page).read_text(encoding="utf-8")
    for language, block in re.findall(r"^```(\w+)\n(.*?)^```", text, re.DOTALL | re.M):
        if language == "python":
            exec(compile(block, page, "exec"), names)
        elif language == "console":
            for command in re.findall(r"^\$ (.+)$", block, re.MULTILINE):
                printed, commands = _output_of(command), commands + 1
        else:
            assert language == "text"
            assert all(line in printed for line in block.splitlines()), printed
    wanted, left = TUTORIALS[page]
    assert commands == wanted
    assert left <= {path.name for path in tmp_path.iterdir()}


def _output_of(line: str) -> str:
    program, *arguments = shlex.split(line)
    started = {"python": [sys.executable], "analytic-secagg": [sys.executable, "-m", "simulations"]}[program]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "240"}
    done = subprocess.run([*started, *arguments], capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _printed_costs() -> dict[str, list[int]]:
    """What the page says that modes cost."""
    page = (DOCS / "how-to" / "choose-a-privacy-mode.md").read_text(encoding="utf-8")
    table = page.split("| mode | messages of a client |")[1].split("\n\n")[0].splitlines()[2:]
    rows = [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in table]
    return {name: list(map(int, costs)) for name, *costs in rows if MODES[name].installed}


def test_the_costs_of_the_modes_are_what_their_sums_state() -> None:
    """The contract of sums says that they are the measured ones: tests/contracts/test_sum_protocol.py."""
    digits, clients = bundled("digits"), tuple(range(1, 101))
    fits = RowFormat.covering(digits.x_train)
    sizes = {"n_features": 64, "n_targets": 10, "max_rows": len(digits.x_train), "max_clients": len(clients)}
    step = Federation(AFL(**sizes, feature_format=fits), release=None).next_sum
    assert step is not None
    for name, printed in _printed_costs().items():
        sum_ = MODES[name].in_one_process(layout=step.layout, clients=clients, session_id=bytes(16)).protocol
        client, *helpers = sum_.costs["client"], *(cost for role, cost in sum_.costs.items() if role != "client")
        stated = [client.messages_up, client.bytes_up, client.bytes_down]
        assert printed == [*stated, *([helpers[0].bytes_up, helpers[0].bytes_down] if helpers else [0, 0])], name
