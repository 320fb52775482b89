"""What a comparison leaves behind: its table, its JSON and its page say the same, in the promised form."""

from __future__ import annotations

import html
import io
import json
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import jsonschema
import pytest
from rich.console import Console

from federation.datasets import bundled
from federation.learners import LEARNERS, ChosenLearner
from federation.modes import Mode, choose_modes
from simulations.compare.baselines import BASELINES
from simulations.compare.comparison import CompareSettings, Comparison, compare
from simulations.compare.private import PrivacyTerms, PrivateSettings
from simulations.data.partitions import parse_partition
from simulations.report.findings import findings, human_bytes
from simulations.report.html_report import sections, to_html
from simulations.report.plots import BarChart
from simulations.report.table import describe, print_comparison


def comparison_of(*modes: Mode) -> Comparison:
    return compare(
        bundled("digits"),
        CompareSettings(
            learners=(ChosenLearner(entry=LEARNERS["afl"]),),
            modes=modes,
            n_clients=(3, 5),
            partitions=(parse_partition("iid"), parse_partition("dirichlet:0.1")),
        ),
    )


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    return comparison_of(*choose_modes(["plain", "masked"]))


@pytest.fixture(scope="module")
def everything() -> Comparison:
    """Two learners, one of them with personal models, and both baselines."""
    return compare(
        bundled("digits"),
        CompareSettings(
            learners=(
                ChosenLearner(entry=LEARNERS["fedhip"], options={"alphas": (2.0, 0.5)}),
                ChosenLearner(entry=LEARNERS["afl"]),
            ),
            modes=choose_modes(["plain", "committee"]),
            n_clients=(5,),
            partitions=(parse_partition("iid"), parse_partition("dirichlet:0.1")),
            baselines=tuple(one.with_values({"rounds": 2}) for one in BASELINES.values()),
            explain=True,
            private=(PrivateSettings(epsilons=(2.0,), terms=PrivacyTerms(), n_clients=5, n_seeds=1),),
        ),
    )


@pytest.fixture
def broken(off_by_one: Mode) -> Comparison:
    return comparison_of(off_by_one)


def printed(comparison: Comparison, width: int = 120) -> str:
    file = io.StringIO()
    print_comparison(comparison, Console(file=file, width=width))
    return file.getvalue()


def test_the_json_report_follows_its_schema(comparison: Comparison, everything: Comparison, broken: Comparison) -> None:
    schema = Comparison.schema_of_report()
    jsonschema.Draft202012Validator.check_schema(schema)
    for one in (comparison, everything, broken):
        document = json.loads(one.to_json())
        assert document == one.to_document()
        jsonschema.validate(document, schema)


@pytest.mark.parametrize(
    ("place", "value"),
    [("seed", -1), ("format", "float32"), ("runs", []), ("schema_version", 1), ("dropout_rate", 1), ("ridge", "0")],
)
def test_the_schema_refuses_what_no_report_says(comparison: Comparison, place: str, value: object) -> None:
    document = comparison.to_document()
    document[place] = value
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, Comparison.schema_of_report())


def test_the_json_report_marks_baselines_and_lists_alphas(everything: Comparison) -> None:
    document = everything.to_document()
    assert document["learner_options"] == {"fedhip": {"alphas": [2.0, 0.5]}, "afl": {}}
    assert {one["mode"] for one in document["baselines"]} == {"baseline"}
    assert [one["learner"] for one in document["baselines"]] == ["fedavg", "fedavg", "fedprox", "fedprox"]
    assert {tuple(run["personalised_test_accuracy"] or ()) for run in document["runs"]} == {("2", "0.5"), ()}
    assert document["all_bitwise_equal_to_pooled"] is True


def test_the_table_has_a_line_for_each_run_and_the_hash_below(comparison: Comparison) -> None:
    text = printed(comparison)
    lines = [line for line in text.splitlines() if re.match(r"^(plain|masked) ", line)]
    assert len(lines) == len(comparison.runs) == 8
    for line, run in zip(lines, comparison.runs, strict=True):
        cells = line.split()
        assert cells[:5] == [run.mode, run.learner, str(run.clients), run.partition, str(run.survivors)]
        assert f"{run.test_accuracy:.2%}" in cells
        assert "yes" in cells
        assert f"{run.messages_per_client} ({run.heavy_messages_per_client})" in line
    assert f"one weights hash in all runs: {comparison.runs[0].weights_sha256}" in text
    assert "all 8 runs equal the pooled model of the surviving clients, bit for bit" in text


def test_the_tables_show_personal_models_and_mark_baselines(everything: Comparison) -> None:
    text = printed(everything)
    personal = text[text.index("Mean accuracy on a fifth of each client's own rows") :]
    runs = [run for run in everything.runs if run.learner == "fedhip"]
    lines = re.findall(r"^(?:plain|committee) +fedhip .*$", personal, flags=re.MULTILINE)
    assert len(lines) == len(runs) == 4
    for line, run in zip(lines, runs, strict=True):
        assert run.personalised_test_accuracy is not None
        numbers = [run.local_test_accuracy, *run.personalised_test_accuracy.values()]
        assert line.split()[2:] == [str(run.clients), run.partition, *(f"{number:.2%}" for number in numbers), "yes"]
    marked = re.findall(r"^baseline +(\w+) +5 (\S+) +5 +(\S+%) +- +2 \(2\)", text, flags=re.MULTILINE)
    assert marked == [(one.learner, one.partition, f"{one.test_accuracy:.2%}") for one in everything.baselines]
    assert (
        "gradient baselines, for comparison only (fedavg, fedprox with mu 0.01): sums in the clear, no bitwise law"
        in text
    )


def test_the_words_below_the_table_count_messages_and_explain(comparison: Comparison, everything: Comparison) -> None:
    said = [finding for _, finding in findings(comparison)]
    assert "masked: heavy messages 1, messages 4" in said
    assert "committee: heavy messages 1, messages 1 [fedhip, afl]" in [finding for _, finding in findings(everything)]
    several = comparison.runs[0].model_copy(
        update={"sums": 4, "messages_per_sum": (4, 2, 2, 2), "messages_per_client": 10}
    )
    said = [finding for _, finding in findings(comparison.model_copy(update={"runs": (several,)}))]
    assert "plain: heavy messages 1, messages 10 in 4 sums (4, 3 x 2)" in said
    assert [what for what, _ in everything.explanations] == [
        f"{learner}, {mode}, 5 clients" for learner in ("fedhip", "afl") for mode in ("plain", "committee")
    ]
    for what, words in everything.explanations:
        assert f"\n{what}, largest sum:\n{words.splitlines()[0]}"[:100] in printed(everything)


def test_wrong_personal_models_are_said_loudly(everything: Comparison) -> None:
    odd = everything.runs[0].model_copy(update={"personalised_bitwise_equal_to_pooled": False})
    runs = (odd, *everything.runs[1:])
    wrong = everything.model_copy(update={"runs": runs})
    assert not wrong.all_bitwise_equal_to_pooled
    loud = "NOT EQUAL: personal models differ from those of the pooled total (fedhip plain with 5 clients, iid)"
    assert (False, loud) in list(findings(wrong))
    assert len(re.findall(r" NO$", printed(wrong), re.MULTILINE)) == 1
    assert '<td class="wrong">NO</td>' in to_html(wrong)


@pytest.mark.parametrize("width", [60, 80])
def test_a_narrow_terminal_loses_no_digit(comparison: Comparison, width: int) -> None:
    assert "…" not in printed(comparison, width)


def test_the_description_warns_of_a_format_that_looked_at_all_rows(comparison: Comparison) -> None:
    assert "format UQ5.11 (covers all rows; a deployment agrees on a format before it sees any)" in describe(comparison)


def test_a_run_that_is_not_exact_is_said_loudly(broken: Comparison) -> None:
    text = printed(broken)
    assert "NOT EQUAL: 4 of 4 runs differ from the pooled model" in re.sub(r"\s+", " ", text)
    assert text.count(" NO ") == 4
    assert [fine for fine, _ in findings(broken)] == [False, True, True]
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
    charts = [chart for section in sections(comparison) for chart in section.charts]
    assert len(charts) == 5  # accuracy for each of two cohorts, bytes, seconds, deviation
    assert reader.labels == [chart.alt for chart in charts]
    assert reader.tags.count("svg") == len(charts)
    assert f"afl, all 2 modes: iid {comparison.runs[0].test_accuracy:.2%}" in reader.labels[0]
    assert html.escape(comparison.to_json()) in page.replace("&#34;", "&quot;")


def test_the_page_holds_the_table(comparison: Comparison) -> None:
    page = to_html(comparison)
    assert "Gradient baselines" not in page
    assert "Personal models" not in page
    table = page[page.index('aria-label="Table of runs"') :]
    rows = re.findall(r"<tr>\n<th scope=\"row\".*?</tr>", table, flags=re.DOTALL)
    assert len(rows) == len(comparison.runs)
    for row, run in zip(rows, comparison.runs, strict=True):
        cells = [re.sub("<.*?>", "", cell) for cell in re.findall("<t[dh].*?>(.*?)</t[dh]>", row)]
        assert cells[:5] == [run.mode, run.learner, str(run.clients), run.partition, str(run.survivors)]
        assert cells[5] == f"{run.test_accuracy:.2%}"
        assert cells[7] == "yes"
        assert cells[-1] == run.weights_sha256[:8]


def test_the_page_holds_personal_models_baselines_and_explanations(everything: Comparison) -> None:
    page = to_html(everything)
    reader = Links()
    reader.feed(page)
    assert reader.loads == []
    assert len(reader.labels) == 7  # accuracy, bytes and seconds of two learners, deviation, epsilon
    rows = re.findall(r'<tr>\n<th scope="row".*?</tr>', page[page.index("<h2>Personal models") :], flags=re.DOTALL)
    cells = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in rows]
    personal = [run for run in everything.runs if run.learner == "fedhip"]
    assert len(cells) == len(personal) + len(everything.baselines)
    for row, run in zip(cells, personal, strict=False):
        assert run.personalised_test_accuracy is not None
        numbers = [run.local_test_accuracy, *run.personalised_test_accuracy.values()]
        assert row[4:] == [*(f"{number:.2%}" for number in numbers if number is not None), "yes"]
    for row, one in zip(cells[len(personal) :], everything.baselines, strict=True):
        assert row[0] == one.learner
        assert row[4] == f"{one.test_accuracy:.2%}"
    assert "For comparison only" in page
    assert f"fedprox, 2 rounds: iid {everything.baselines[2].test_accuracy:.2%}" in html.unescape(
        reader.labels[0]
    ) or "fedavg = fedprox, 2 rounds" in html.unescape(reader.labels[0])
    assert html.escape(everything.explanations[-1][1]) in page


def test_personal_numbers_that_nobody_has_stand_nowhere(everything: Comparison) -> None:
    """No client held enough rows to keep some for testing; the weights were compared all the same."""
    bare = tuple(
        run.model_copy(update={"local_test_accuracy": None, "personalised_test_accuracy": None})
        for run in everything.runs
    )
    odd = everything.model_copy(update={"runs": bare})
    jsonschema.validate(json.loads(odd.to_json()), Comparison.schema_of_report())
    assert "Personal models" not in to_html(odd)
    assert "Mean accuracy" not in printed(odd)
    assert "every client's personal models equal" in printed(odd)


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
