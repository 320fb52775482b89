"""What a comparison leaves behind: its table, its JSON and its page say the same, in the promised form."""

from __future__ import annotations

import dataclasses
import html
import io
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import jsonschema
import pytest
from rich.console import Console

from simulations.compare import CompareSettings, Comparison, RunRecord, compare
from simulations.data import bundled
from simulations.learners import choose_learner
from simulations.modes import Mode, choose_modes
from simulations.partitions import parse_partition
from simulations.report.html_report import charts, to_html
from simulations.report.json_report import load_schema, to_document, to_json
from simulations.report.plots import BarChart
from simulations.report.table import describe, findings, human_bytes, print_comparison

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "compare-json.md"


def comparison_of(*modes: Mode) -> Comparison:
    return compare(
        bundled("digits"),
        CompareSettings(
            learner=choose_learner("afl"),
            modes=modes,
            n_clients=(3, 5),
            partitions=(parse_partition("iid"), parse_partition("dirichlet:0.1")),
        ),
    )


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    return comparison_of(*choose_modes(["plain", "masked"]))


@pytest.fixture
def broken(off_by_one: Mode) -> Comparison:
    return comparison_of(off_by_one)


def printed(comparison: Comparison, width: int = 120) -> str:
    file = io.StringIO()
    print_comparison(comparison, Console(file=file, width=width))
    return file.getvalue()


def test_the_json_report_follows_its_schema(comparison: Comparison, broken: Comparison) -> None:
    schema = load_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    for one in (comparison, broken):
        document = json.loads(to_json(one))
        assert document == to_document(one)
        jsonschema.validate(document, schema)


@pytest.mark.parametrize(
    ("place", "value"),
    [("seed", -1), ("format", "float32"), ("runs", []), ("schema_version", 2), ("dropout_rate", 1), ("ridge", "0")],
)
def test_the_schema_refuses_what_no_report_says(comparison: Comparison, place: str, value: object) -> None:
    document = to_document(comparison)
    document[place] = value
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, load_schema())


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(RunRecord)])
def test_the_schema_asks_for_every_number_of_a_run(comparison: Comparison, name: str) -> None:
    document = to_document(comparison)
    del document["runs"][0][name]
    with pytest.raises(jsonschema.ValidationError, match=f"'{name}' is a required property"):
        jsonschema.validate(document, load_schema())


def test_the_reference_page_says_what_the_schema_says() -> None:
    schema, text = load_schema(), REFERENCE.read_text(encoding="utf-8")
    described = dict(re.findall(r"^\| `(\w+)` \| .+? \| (.+) \|$", text, flags=re.MULTILINE))
    properties = schema["properties"] | schema["$defs"]["dataset"]["properties"] | schema["$defs"]["run"]["properties"]
    assert described == {name: entry["description"] for name, entry in properties.items()}
    assert set(schema["$defs"]["run"]["properties"]) == {field.name for field in dataclasses.fields(RunRecord)}
    for part in (schema, *schema["$defs"].values()):
        assert part["required"] == list(part["properties"])


def test_the_table_has_a_line_for_each_run_and_the_hash_below(comparison: Comparison) -> None:
    text = printed(comparison)
    lines = [line for line in text.splitlines() if re.match(r"^(plain|masked) ", line)]
    assert len(lines) == len(comparison.runs) == 8
    for line, run in zip(lines, comparison.runs, strict=True):
        cells = line.split()
        assert cells[:4] == [run.mode, str(run.clients), run.partition, str(run.survivors)]
        assert f"{run.test_accuracy:.2%}" in cells
        assert "yes" in cells
    assert f"one weights hash in all runs: {comparison.runs[0].weights_sha256}" in text
    assert "all 8 runs equal the pooled model of the surviving clients, bit for bit" in text


@pytest.mark.parametrize("width", [60, 80])
def test_a_narrow_terminal_loses_no_digit(comparison: Comparison, width: int) -> None:
    assert "…" not in printed(comparison, width)


def test_the_description_warns_of_a_format_that_looked_at_all_rows(comparison: Comparison) -> None:
    assert "format UQ5.11 (covers all rows; a deployment agrees on a format before it sees any)" in describe(comparison)


def test_a_run_that_is_not_exact_is_said_loudly(broken: Comparison) -> None:
    text = printed(broken)
    assert "NOT EQUAL: 4 of 4 runs differ from the pooled model" in re.sub(r"\s+", " ", text)
    assert text.count(" NO ") == 4
    assert [fine for fine, _ in findings(broken)] == [False, True]
    assert '<li class="wrong">NOT EQUAL: 4 of 4 runs' in to_html(broken)


class Links(HTMLParser):
    """Collects whatever a page could load, and what it nests."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.loads: list[str] = []
        self.labels: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            if name in ("src", "href", "xlink:href", "srcset", "data", "action") and not (value or "").startswith("#"):
                self.loads.append(f"{tag} {name}={value}")
            if tag == "svg" and name == "aria-label":
                self.labels.append(value or "")


def test_the_page_is_self_contained_and_describes_its_plots(comparison: Comparison) -> None:
    page = to_html(comparison)
    reader = Links()
    reader.feed(page)
    assert reader.loads == []
    assert not {"script", "link", "img", "iframe", "object"} & set(reader.tags)
    assert "@import" not in page
    assert not re.search(r"url\((?!#)", page)
    assert reader.tags.count("svg") == 3 == len(reader.labels)
    assert reader.labels == [chart.alt for chart in charts(comparison)]
    assert f"masked {comparison.runs[1].test_accuracy:.2%}" in reader.labels[0]
    assert html.escape(to_json(comparison)) in page.replace("&#34;", "&quot;")


def test_the_page_holds_the_table(comparison: Comparison) -> None:
    rows = re.findall(r"<tr>\n<td.*?</tr>", to_html(comparison), flags=re.DOTALL)
    assert len(rows) == len(comparison.runs)
    for row, run in zip(rows, comparison.runs, strict=True):
        cells = [re.sub("<.*?>", "", cell) for cell in re.findall("<td.*?>(.*?)</td>", row)]
        assert cells[:4] == [run.mode, str(run.clients), run.partition, str(run.survivors)]
        assert cells[4] == f"{100 * run.test_accuracy:.2f} %"
        assert cells[6] == "yes"
        assert cells[-1] == run.weights_sha256[:8]


def test_a_chart_is_sound_xml_and_the_same_every_time() -> None:
    chart = BarChart(
        title='A <title> & "more"',
        groups=["g<1>", "h"],
        series={"s": [1.0, None], "t": [0.0, 2.0]},
        label="{:.1f}".format,
    )
    svg = chart.to_svg()
    assert svg == chart.to_svg()
    root = ElementTree.fromstring(svg)  # noqa: S314 (our own text)
    assert root.attrib["aria-label"] == chart.alt == 'Bar chart. A <title> & "more". g<1>: s 1.0; t 0.0. h: t 2.0.'
    assert root.attrib["role"] == "img"
    texts = {text.text for text in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {"1.0", "0.0", "2.0", "g<1>", "h"} <= texts


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1 kB"),
        (15_142, "15.1 kB"),
        (944_945, "945 kB"),
        (999_600, "1 MB"),
        (1_200_000, "1.2 MB"),
        (5e12, "5000 GB"),
    ],
)
def test_bytes_read_like_a_person_writes_them(count: float, text: str) -> None:
    assert human_bytes(count) == text
