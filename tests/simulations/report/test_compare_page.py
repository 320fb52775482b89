"""The page of a comparison as its reader meets it: opened in a real browser, wide and narrow, with and without data."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO
from xml.etree import ElementTree

import numpy as np
import pytest

from federation.datasets import Dataset, bundled
from federation.learners import LEARNERS, ChosenLearner
from federation.modes import Mode, choose_modes
from simulations.compare.baselines import BASELINES
from simulations.compare.comparison import CompareSettings, Comparison, compare
from simulations.compare.private import PrivacyTerms, PrivateSettings
from simulations.data.partitions import parse_partition
from simulations.report.compare_charts import PUBLISHED, accuracy_charts, deviation_chart, distinct, overview
from simulations.report.findings import verdict
from simulations.report.html_report import sections, to_html
from simulations.report.plots import LineChart, spread

pytestmark = pytest.mark.xdist_group("page")  # one process makes the fixtures, which take long, once

CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
OFFLINE = ("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-quic")
OPTIONS = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", *OFFLINE, "--remote-debugging-pipe")
PARTITIONS = tuple(parse_partition(name) for name in ("iid", "dirichlet:0.1"))


def settings(**changes: Any) -> CompareSettings:
    small: dict[str, Any] = {
        "learners": (ChosenLearner(entry=LEARNERS["afl"]),),
        "modes": choose_modes(["plain"]),
        "n_clients": (4,),
        "partitions": PARTITIONS[1:],
    }
    return CompareSettings(**(small | changes))


@pytest.fixture(scope="module")
def bare() -> Comparison:
    return compare(bundled("breast_cancer"), settings())


@pytest.fixture(scope="module")
def full() -> Comparison:
    """Everything that the page can show, on rows whose products float64 cannot hold exactly."""
    private = [
        PrivateSettings(
            epsilons=(1.0, 8.0),
            terms=PrivacyTerms(n_layers=n_layers, mean_share=0.0, d_phi=16),
            n_clients=4,
            partition=partition,
            n_seeds=1,
        )
        for n_layers in (None, 1, 0)
        for partition in PARTITIONS
    ]
    return compare(
        bundled("breast_cancer"),
        settings(
            learners=tuple(ChosenLearner(entry=LEARNERS[name]) for name in ("afl", "fedhip")),
            modes=choose_modes(["plain", "masked", "committee"]),
            partitions=PARTITIONS,
            baselines=tuple(one.with_values({"rounds": 2}) for one in BASELINES.values()),
            private=tuple(private),
            explain=True,
        ),
    )


# In a browser


@dataclass
class Browser:
    """One tab of a headless Chromium, spoken to through two pipes in the DevTools protocol."""

    to_browser: BinaryIO
    from_browser: BinaryIO
    events: list[dict[str, Any]] = field(default_factory=list)
    session: str | None = None
    calls: int = 0

    def call(self, method: str, **parameters: Any) -> Any:
        self.calls += 1
        message = {"id": self.calls, "method": method, "params": parameters}
        self.to_browser.write(json.dumps(message | ({"sessionId": self.session} if self.session else {})).encode())
        self.to_browser.write(b"\0")
        self.to_browser.flush()
        while (answer := self._read()).get("id") != self.calls:
            pass
        assert "error" not in answer, answer
        return answer["result"]

    def open(self, file: Path) -> None:
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.call(f"{domain}.enable")
        self.call("Page.navigate", url=file.as_uri())
        while not self.seen("Page.loadEventFired"):
            self._read()

    def seen(self, *methods: str) -> list[dict[str, Any]]:
        return [event["params"] for event in self.events if event.get("method") in methods]

    def evaluate(self, expression: str) -> Any:
        """Works although the page itself allows no scripts."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

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


@needs_chromium
@pytest.mark.parametrize("which", ["bare", "full"])
def test_a_browser_shows_every_section_wide_and_narrow(
    which: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    comparison: Comparison = request.getfixturevalue(which)
    file = tmp_path / "compare.html"
    file.write_text(to_html(comparison), encoding="utf-8")
    with browser(tmp_path / "profile") as tab:
        tab.open(file)
        for width in (1280, 400):
            tab.show_at(width)
            assert tab.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), width
            shown = tab.evaluate("[...document.querySelectorAll('section')].map(s => [s.id, s.offsetHeight])")
            assert [name for name, _ in shown] == ["accuracy", "costs", "deviation", "epsilon"]
            assert all(height > 60 for _, height in shown)
            sizes = tab.evaluate("[...document.querySelectorAll('svg')].map(s => s.getBoundingClientRect().width)")
            assert len(sizes) == sum(len(section.charts) for section in sections(comparison))
            assert all(300 < size <= width for size in sizes)
        requests = [one["request"]["url"] for one in tab.seen("Network.requestWillBeSent")]
        assert requests == [file.as_uri()]
        assert tab.seen("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded") == []


@needs_chromium
def test_colours_follow_the_reader_and_paper_is_light(full: Comparison, tmp_path: Path) -> None:
    file = tmp_path / "compare.html"
    file.write_text(to_html(full), encoding="utf-8")
    with browser(tmp_path / "profile") as tab:
        tab.open(file)
        seen = []
        for scheme, media in (("light", "screen"), ("dark", "screen"), ("dark", "print")):
            tab.show_at(1280, scheme=scheme, media=media)
            paper = tab.evaluate("getComputedStyle(document.body).backgroundColor")
            seen.append((paper, tab.evaluate("getComputedStyle(document.querySelector('svg text')).fill")))
    light, dark, printed = seen
    assert light == ("rgb(255, 255, 255)", "rgb(27, 31, 36)")
    assert dark == ("rgb(22, 25, 29)", "rgb(232, 234, 237)")
    assert printed == light


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


def test_the_verdict_stands_first_and_counts(bare: Comparison, full: Comparison, off_by_one: Mode) -> None:
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
    one = compare(data, settings(n_clients=(1,), partitions=PARTITIONS[:1])).runs[0]
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


def test_partitions_with_equal_private_numbers_share_a_chart(full: Comparison) -> None:
    assert len(full.private) == 6
    assert [title for title, _ in distinct(full)] == [
        f"{name}, 4 clients, iid, dirichlet:0.1" for name in ("afl", "deepafl with T = 1", "deepafl with T = 0")
    ]
    page = to_html(full)
    assert page.count("Mean and spread over repetitions") == 3
    for sentence in (full.private[0].records[1].accuracy_mean, full.private[0].records[-1].accuracy_mean):
        assert f"{sentence:.3f} +- " in page


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
