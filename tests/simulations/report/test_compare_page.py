"""What a comparison leaves behind: its page as its reader meets it, its table and its JSON, with and without data."""

from __future__ import annotations

import html
import io
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jsonschema
import numpy as np
import pytest
from rich.console import Console
from support.comparisons import exact, learner
from support.pages import Page, browser, needs_chromium

from analytic_secagg.datasets import Dataset, bundled
from simulations.compare.comparison import Comparison, compare
from simulations.compare.plan import flat, private_run, private_tasks
from simulations.compare.tuning import Task
from simulations.report.columns import human_bytes
from simulations.report.compare_charts import PUBLISHED, accuracy_charts, deviation_chart, overview
from simulations.report.findings import findings, verdict
from simulations.report.html_report import sections, to_html
from simulations.report.plots import BarChart, LineChart, spread
from simulations.report.table import print_comparison

PARTITIONS = ("iid", "dirichlet:0.1")


def settings(*learners: Mapping[str, Any], **changes: Any) -> list[Task]:
    return exact(*learners, **({"clients": (4,)} | changes))


@pytest.fixture(scope="module")
def bare() -> Comparison:
    return compare(bundled("breast_cancer"), settings())


@pytest.fixture(scope="module")
def full() -> Comparison:
    """Everything that the page can show, on rows whose products float64 cannot hold exactly."""
    small = {"clients": 4}
    deep = private_run("deepafl", {"d_phi": 16}, partition="iid", **small)
    private = [
        task
        for run in (private_run("afl", partition="iid", **small), deep, flat(deep))
        for partition in PARTITIONS
        for task in private_tasks(run.but(partition=partition), (1.0, 8.0), [{"mode": "masked"}], seeds=range(1))
    ]
    exact_runs = settings(
        learner("afl"),
        learner("fedhip", alphas=(2.0, 0.5)),
        modes=("plain", "masked", "committee"),
        partitions=PARTITIONS,
        baselines=(learner("fedavg", rounds=2), learner("fedprox", rounds=2)),
        explain=True,
    )
    return compare(bundled("breast_cancer"), [*exact_runs, *private])


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    """Two modes, cohorts and partitions."""
    modes = ("plain", "masked")
    return compare(bundled("digits"), settings(clients=(3, 5), partitions=PARTITIONS, modes=modes))


@pytest.fixture
def broken(off_by_one: str) -> Comparison:
    return compare(bundled("digits"), settings(clients=(3, 5), partitions=PARTITIONS, modes=(off_by_one,)))


# In a browser


@needs_chromium
def test_a_browser_shows_every_section_wide_and_narrow(full: Comparison, tmp_path: Path) -> None:
    file = tmp_path / "compare.html"
    file.write_text(to_html(full), encoding="utf-8")
    with browser(tmp_path / "profile") as tab:
        tab.open(file)
        for width in (1280, 400):
            tab.show_at(width)
            assert tab.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), width
            shown = tab.evaluate("[...document.querySelectorAll('section')].map(s => [s.id, s.offsetHeight])")
            assert [name for name, _ in shown] == ["accuracy", "costs", "deviation", "epsilon"]
            assert all(height > 60 for _, height in shown)
            sizes = tab.evaluate("[...document.querySelectorAll('svg')].map(s => s.getBoundingClientRect().width)")
            assert len(sizes) == sum(len(section.charts) for section in sections(full))
            assert all(300 < size <= width for size in sizes)
        requests = [one["request"]["url"] for one in tab.seen("Network.requestWillBeSent")]
        assert requests == [file.as_uri()]
        assert tab.seen("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded") == []


# What it says


def test_what_a_run_lacks_is_named_with_its_flag(bare: Comparison, full: Comparison) -> None:
    lacking = {section.anchor: section.missing for section in sections(bare)}
    assert ["--partition" in line for line in lacking["accuracy"]] == [True, False]
    assert "--baselines all" in lacking["accuracy"][1]
    assert "--modes" in lacking["costs"][0]
    assert "--epsilon" in lacking["epsilon"][0]
    assert [len(section.charts) for section in sections(bare)] == [1, 2, 1, 0]
    assert all(not section.missing for section in sections(full))
    assert all(section.charts for section in sections(full))
    page = to_html(bare)
    assert all(line in page for lines in lacking.values() for line in lines)


def test_the_verdict_stands_first_and_counts(bare: Comparison, full: Comparison, off_by_one: str) -> None:
    said = "In each of 12 runs (2 learners, 3 privacy modes, 2 partitions) the federated model is the pooled model of"
    assert verdict(full) == (True, f"{said} the surviving clients, bit for bit.")
    assert verdict(bare)[1].startswith("The federated model is the pooled model")
    page = to_html(full)
    assert page.index(said) < page.index("<h2")
    wrong = compare(bundled("breast_cancer"), settings(modes=(off_by_one,)))
    fine, sentence = verdict(wrong)
    assert not fine
    assert f'<p class="verdict wrong" role="status">{sentence}</p>' in to_html(wrong)
    assert deviation_chart(wrong).title.startswith("NOT EQUAL")
    assert next(iter(deviation_chart(wrong).values.values())) > 0


def test_zero_stands_beside_float64_and_what_others_published(full: Comparison) -> None:
    ours, by_gram, by_weights, *published = deviation_chart(full).values.values()
    assert ours == 0.0
    assert 0 < by_gram < 1e-6
    assert 0 < by_weights < 1e-6
    assert published == [one.value for one in PUBLISHED]
    page = to_html(full)
    for one in PUBLISHED:
        assert one.source in page
        assert f"{one.value:.2e}" in page


def test_float64_sums_of_small_whole_numbers_are_exact_and_solved_weights_are_not() -> None:
    """Digits are whole numbers below 17: the page must not claim a deviation there that does not exist."""
    run = compare(bundled("digits"), settings()).runs[0]
    assert run.float64_gram_sum_max_abs_weight_deviation == 0.0
    assert run.float64_solved_weights_max_abs_weight_deviation > 0


def test_float64_deviations_are_those_of_the_clients_that_took_part() -> None:
    rng = np.random.default_rng(3)
    x, y = rng.random((60, 3)).astype(np.float32), np.arange(60) % 3
    data = Dataset(name="own", x_train=x[:48], y_train=y[:48], x_test=x[48:], y_test=y[48:])
    one = compare(data, settings(clients=(1,), partitions=PARTITIONS[:1])).runs[0]
    assert one.float64_gram_sum_max_abs_weight_deviation == 0.0


def test_lines_are_drawn_once_where_modes_agree_and_apart_where_not(full: Comparison) -> None:
    chart = next(accuracy_charts(full))
    assert isinstance(chart, LineChart)
    assert list(chart.series)[:2] == ["afl, all 3 modes", "fedhip, all 3 modes"]
    aside = {name for name, line in chart.series.items() if line.aside}
    assert aside in ({"fedavg = fedprox, 2 rounds"}, {"fedavg, 2 rounds", "fedprox, 2 rounds"})
    first = full.runs[0].model_copy(update={"test_accuracy": 0.5})
    other = next(accuracy_charts(full.model_copy(update={"runs": (first, *full.runs[1:])})))
    assert isinstance(other, LineChart)
    assert list(other.series)[:2] == ["afl, plain", "afl, masked, committee"]
    assert other.series["afl, plain"].y[0] == 0.5


def test_one_flat_table_holds_every_model_that_was_trained(full: Comparison) -> None:
    """Exact runs, gradient baselines and every repetition, in the JSON report and as a data frame alike."""
    found = full.runs
    exact_runs, gradient = full.exact, full.baselines
    under_noise = [run for run in found if run.split == "drawn"]
    assert len(exact_runs) == 12
    assert {run.bitwise_equal_to_pooled for run in exact_runs} == {True}
    assert {(run.bitwise_equal_to_pooled, run.options["rounds"]) for run in gradient} == {(None, 2)}
    assert [run for one in full.private for own in one.every for run in own.records] == under_noise
    without = [run for run in under_noise if run.trust == "non-private"]
    assert {(run.target_epsilon, run.epsilon, run.delta) for run in without} == {(None, None, None)}
    assert len(exact_runs) + len(gradient) + len(under_noise) == len(found)
    assert json.loads(full.to_json())["runs"] == [run.to_document() for run in found]
    pytest.importorskip("pandas", reason="only data frames need it")
    frame = full.to_frame()
    assert list(frame.columns) == list(found[0].to_document())
    means = frame[frame.trust == "distributed"].groupby(["label", "target_epsilon"]).test_accuracy.mean()
    of_afl = [one.of("distributed", 8.0).quality for one in full.private if one.first.label == "afl"]
    assert means["afl", 8.0] == pytest.approx(sum(of_afl) / len(of_afl), rel=1e-12)


def test_no_id_stands_twice_and_equal_records_give_equal_bytes(full: Comparison) -> None:
    page = to_html(full)
    ids = re.findall(r' id="([^"]+)"', page)
    assert ids
    assert len(ids) == len(set(ids))
    assert page == to_html(full)
    wanted = set(re.findall(r'(?:xlink:href|href)="#([^"]+)"|url\(#([^)]+)\)', page))
    assert {one or other for one, other in wanted} <= set(ids)


def test_the_picture_is_a_file_of_its_own_and_the_same_every_time(full: Comparison, bare: Comparison) -> None:
    for comparison in (full, bare):
        svg = overview(comparison)
        root = ElementTree.fromstring(svg)  # noqa: S314  (made a line above)
        assert verdict(comparison)[1] in root.attrib["aria-label"]
        assert "prefers-color-scheme:dark" in svg
        assert "http" not in re.sub(r' xmlns(:\w+)?="[^"]+"', "", svg)
        assert svg == overview(comparison)


@pytest.mark.parametrize("values", [[0.5, 0.5, 0.5], [0.0, 0.01, 1.0, 0.99], [1.0, 1.0], [0.3]])
def test_names_keep_their_distance_and_order(values: list[float]) -> None:
    places = spread(values, 0.1, low=0.0, high=1.0)
    order = np.argsort(values, kind="stable")
    assert all(np.diff(np.array(places)[order]) >= 0.1 - 1e-12)
    assert min(places) >= 0.0
    assert max(places) <= 1.0 + 1e-12


# Its table, its JSON and its page say the same, in the promised form


def printed(comparison: Comparison, width: int = 120) -> str:
    file = io.StringIO()
    print_comparison(comparison, Console(file=file, width=width))
    return file.getvalue()


def test_the_json_report_follows_its_schema(comparison: Comparison, full: Comparison, broken: Comparison) -> None:
    schema = Comparison.schema_of_report()
    jsonschema.Draft202012Validator.check_schema(schema)
    for one in (comparison, full, broken):
        document = json.loads(one.to_json())
        assert document == one.to_document()
        jsonschema.validate(document, schema)


@pytest.mark.parametrize(
    ("place", "value"),
    [("seed", -1), ("format", "float32"), ("runs", []), ("schema_version", 1), ("dropout", 1), ("ridge", "0")],
)
def test_the_schema_refuses_what_no_report_says(comparison: Comparison, place: str, value: object) -> None:
    document = comparison.to_document()
    (document if place in document else document["runs"][0])[place] = value
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, Comparison.schema_of_report())


def test_the_table_has_a_line_for_each_run_and_the_hash_below(comparison: Comparison) -> None:
    text = printed(comparison)
    lines = [line for line in text.splitlines() if re.match(r"^(plain|masked) ", line)]
    assert len(lines) == len(comparison.runs) == 8
    for line, run in zip(lines, comparison.runs, strict=True):
        cells = line.split()
        assert cells[:5] == [run.mode, run.learner, str(run.clients), run.partition, str(run.survivors)]
        assert f"{run.test_accuracy:.2%}" in cells
        assert "yes" in cells
        assert f"{run.messages_per_client} ({run.vector_messages_per_client})" in line
    assert f"one weights hash in all runs: {comparison.runs[0].weights_sha256}" in text
    assert "all 8 runs equal the pooled model of the surviving clients, bit for bit" in text


def test_the_tables_show_personal_models_and_mark_baselines(full: Comparison) -> None:
    text = printed(full)
    personal = text[text.index("Mean accuracy on a fifth of each client's own rows") :]
    runs = [run for run in full.runs if run.learner == "fedhip"]
    lines = re.findall(r"^(?:plain|masked|committee) +fedhip .*$", personal, flags=re.MULTILINE)
    assert len(lines) == len(runs) == 6
    for line, run in zip(lines, runs, strict=True):
        assert run.personalised_test_accuracy is not None
        numbers = [run.local_test_accuracy, *run.personalised_test_accuracy.values()]
        assert line.split()[2:] == [str(run.clients), run.partition, *(f"{number:.2%}" for number in numbers), "yes"]
    marked = re.findall(r"^baseline +(\w+) +4 (\S+) +4 +(\S+%) +- +2 \(2\)", text, flags=re.MULTILINE)
    assert marked == [(one.learner, one.partition, f"{one.test_accuracy:.2%}") for one in full.baselines]
    assert (
        "gradient baselines, for comparison only (fedavg, fedprox with mu 0.01): sums in the clear, no bitwise law"
        in text
    )


@pytest.mark.parametrize(("survivors", "said"), [(1, "is its vector"), (2, "the other's vector"), (3, "")])
def test_totals_of_one_or_two_clients_are_said_loudly(comparison: Comparison, survivors: int, said: str) -> None:
    runs = (comparison.runs[0].model_copy(update={"survivors": survivors}),)
    found = [finding for _, finding in findings(comparison.model_copy(update={"runs": runs}))]
    loud = [finding for finding in found if "vector" in finding and "vector messages" not in finding]
    assert len(loud) == bool(said)
    assert all(said in finding for finding in loud)


def test_wrong_personal_models_are_said_loudly(full: Comparison) -> None:
    odd = full.runs[6].model_copy(update={"personalised_bitwise_equal_to_pooled": False})
    runs = (*full.runs[:6], odd, *full.runs[7:])
    wrong = full.model_copy(update={"runs": runs})
    assert not wrong.all_bitwise_equal_to_pooled
    loud = "NOT EQUAL: personal models differ from those of the pooled total (fedhip plain with 4 clients, iid)"
    assert (False, loud) in list(findings(wrong))
    assert len(re.findall(r" NO$", printed(wrong), re.MULTILINE)) == 1
    assert '<td class="wrong">NO</td>' in to_html(wrong)


def test_messages_are_counted_below_the_table(comparison: Comparison) -> None:
    several = {"sums": 4, "messages_per_sum": (4, 2, 2, 2), "messages_per_client": 10}
    masked = next(run for run in comparison.runs if run.mode == "masked")
    runs = (comparison.runs[0].model_copy(update=several), masked)
    said = [finding for _, finding in findings(comparison.model_copy(update={"runs": runs}))]
    assert "plain: vector messages 1, messages 10 in 4 sums (4, 3 x 2)" in said
    assert "masked: vector messages 1, messages 4" in said


@pytest.mark.parametrize(("count", "text"), [(999, "999 B"), (15_142, "15.1 kB"), (999_600, "1 MB"), (5e12, "5000 GB")])
def test_bytes_read_like_a_person_writes_them(count: float, text: str) -> None:
    assert human_bytes(count) == text


@pytest.mark.parametrize("width", [60, 80])
def test_a_narrow_terminal_loses_no_digit(comparison: Comparison, width: int) -> None:
    assert "…" not in printed(comparison, width)


def test_a_run_that_is_not_exact_is_said_loudly(broken: Comparison) -> None:
    text = printed(broken)
    assert "NOT EQUAL: 4 of 4 runs differ from the pooled model" in re.sub(r"\s+", " ", text)
    assert text.count(" NO ") == 4
    assert [fine for fine, _ in findings(broken)] == [False, *[True] * 5]
    assert '<li class="wrong">NOT EQUAL: 4 of 4 runs' in to_html(broken)


def test_the_page_is_self_contained_and_describes_its_plots(comparison: Comparison) -> None:
    page = to_html(comparison)
    reader = Page(page)
    assert reader.loaded == []
    assert not {"script", "link", "img", "iframe", "object"} & set(reader.tags)
    assert "@import" not in page
    assert not re.search(r"url\((?!#)", page)
    charts = [chart for section in sections(comparison) for chart in section.charts]
    assert len(charts) == 5  # accuracy for each of two cohorts, bytes, seconds, deviation
    assert reader.labels == [chart.alt for chart in charts]
    assert reader.tags.count("svg") == len(charts)
    assert f"afl, all 2 modes: iid {comparison.runs[0].test_accuracy:.2%}" in reader.labels[0]
    assert html.escape(comparison.to_json()) in page.replace("&#34;", "&quot;")


def test_the_page_holds_personal_models_baselines_and_explanations(full: Comparison) -> None:
    page = to_html(full)
    reader = Page(page)
    assert reader.loaded == []
    assert len(reader.labels) == 9  # accuracy, bytes and seconds of two learners, deviation, three budgets
    rows = re.findall(r'<tr>\n<th scope="row".*?</tr>', page[page.index("<h2>Personal models") :], flags=re.DOTALL)
    cells = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in rows]
    personal = [run for run in full.runs if run.learner == "fedhip"]
    assert len(cells) == len(personal) + len(full.baselines)
    for row, run in zip(cells, personal, strict=False):
        assert run.personalised_test_accuracy is not None
        numbers = [run.local_test_accuracy, *run.personalised_test_accuracy.values()]
        assert row[4:] == [*(f"{number:.2%}" for number in numbers if number is not None), "yes"]
    for row, one in zip(cells[len(personal) :], full.baselines, strict=True):
        assert row[:4] == ["baseline", one.learner, str(one.clients), one.partition]
        assert row[5] == f"{one.test_accuracy:.2%}"
    assert "For comparison only" in page
    assert f"fedprox, 2 rounds: iid {full.baselines[2].test_accuracy:.2%}" in html.unescape(
        reader.labels[0]
    ) or "fedavg = fedprox, 2 rounds" in html.unescape(reader.labels[0])
    assert full.explanations["fedhip, committee, 4 clients"] in html.unescape(page)


def test_personal_numbers_that_nobody_has_stand_nowhere(full: Comparison) -> None:
    """No client held enough rows to keep some for testing; the weights were compared all the same."""
    bare = tuple(
        run.model_copy(update={"local_test_accuracy": None, "personalised_test_accuracy": None}) for run in full.runs
    )
    odd = full.model_copy(update={"runs": bare})
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
