"""The demonstration as its visitor meets it: one command, a page in a real browser, and what its buttons do."""

from __future__ import annotations

import http.client
import json
import os
import queue
import re
import signal
import socket
import sqlite3
import stat
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from support.pages import Browser, Page, browser, needs_chromium

from analytic_secagg.__main__ import main
from analytic_secagg.commands.demo import DemoOptions
from analytic_secagg.datasets import bundled
from analytic_secagg.errors import UsageError
from analytic_secagg.local import command
from analytic_secagg.local.command import demonstration
from analytic_secagg.local.page import PageServer
from analytic_secagg.local.watch import N_BATCHES
from analytic_secagg.site.site_file import SiteFile


@pytest.fixture(scope="module")
def page() -> Iterator[PageServer]:
    """The page of the command itself, which ends as it does by Ctrl-C."""
    opened, ended = queue.SimpleQueue[PageServer](), list[int]()
    with pytest.MonkeyPatch.context() as patch:
        make = command._page
        patch.setattr(command, "_page", lambda shown, port: opened.put(made := make(shown, port)) or made)
        patch.setattr("webbrowser.open", lambda address: visited.append(address))
        visited = list[str]()
        demo = threading.Thread(target=lambda: ended.append(main(["demo", "--clients", "4", "--pace", "0"])))
        demo.start()
        server = opened.get(timeout=600)
        yield server
        server.shutdown()
        demo.join(600)
    assert (ended, visited) == ([0], [_opened(server).as_uri()])


def _opened(page: PageServer) -> Path:
    """What the browser was started with."""
    return page.demonstration.folder.parent / "open.html"


def ask(page: PageServer, method: str, path: str, body: str = "", host: str = "") -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", page.server_port, timeout=300)
    connection.request(method, path, body=body.encode(), headers={"Host": host} if host else {})
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def press(page: PageServer, what: str, whom: str = "") -> dict[str, Any]:
    """Press a button, wait for the end of what it began, and return what the page is told then."""
    query = f"?token={page.token}"
    assert ask(page, "POST", f"/act{query}", json.dumps({"what": what, "whom": whom})) == (200, "")
    page.demonstration.wait()
    state: dict[str, Any] = json.loads(ask(page, "GET", f"/state{query}")[1])
    return state


def test_a_visit(page: PageServer, capsys: pytest.CaptureFixture[str]) -> None:
    """Train; the same rows are refused; a malicious helper is named; a site that returns is in no difference."""
    first = press(page, "run", "committee")
    assert first["run"]["failure"] == ""
    assert first["model"] == first["pooled"]
    assert first["survivors"] == [1, 2, 3, 4]
    assert first["accuracy"] > 0.8
    assert first["receipts"]["kept"] == 4
    assert "countersigned by 3 of the 4 helpers" in first["receipts"]["says"]
    assert first["receipts"]["wrong"] == []
    assert all(not step["open"] for step in first["run"]["steps"])
    assert set(first["logged_totals"].values()) == {1}

    again = press(page, "run", "committee")
    assert "0 of 4 parties answered" in again["run"]["failure"]
    assert "model" not in again
    (why,) = again["run"]["seen"]
    assert why.startswith(
        "The own log of site-1, site-2, site-3, site-4 says: these rows, or some of them, are in 1 tot"
    )

    press(page, "rows")
    assert [party["name"] for party in press(page, "corrupt", "helper-102")["parties"] if party["malicious"]] == [
        "helper-102"
    ]
    corrupted = press(page, "run", "committee")
    assert corrupted["model"] == corrupted["pooled"]
    assert (
        "helper-102 sends other sums than the other helpers: it is malicious, and is left out"
        in corrupted["run"]["seen"]
    )

    site = page.demonstration.folder / "site-1" / "site.toml"
    capsys.readouterr()
    assert main(["inspect", str(site)]) == 0
    told = capsys.readouterr().out
    assert "client 1: its rows are in 2 totals" in told
    assert len(re.findall("with clients 1, 2, 3, 4; receipt of sum .*countersigned by 3 of the 4 helpers", told)) == 2
    assert len(re.findall("came back: .*model-[0-9a-f]{16}.safetensors", told)) == 2
    assert main(["inspect", str(site), "--metrics"]) == 0
    numbers = capsys.readouterr().out.splitlines()
    assert {"analytic_secagg_totals_rows 2", "analytic_secagg_receipts 2", "analytic_secagg_sessions 0"} <= {*numbers}
    (receipt, *_) = site.parent.glob("results/*.receipt")
    receipt.with_stem("0" * 16).write_bytes(receipt.read_bytes())
    receipt.with_stem("1" * 16).write_bytes(b"half a receipt")
    journal = site.parent / "state" / "sessions.sqlite"
    before = journal.read_bytes()
    with sqlite3.connect(f"file:{journal}?mode=ro", uri=True) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM totals").fetchone()  # now whoever would write waits
        assert main(["inspect", str(site)]) == 0
    said = capsys.readouterr().out
    assert f"receipt {'0' * 16}: its sum is not in the query log" in said
    assert f"receipt {'1' * 16}: A RECEIPT THAT DOES NOT COUNT: these bytes are no receipt of this version" in said
    assert len(re.findall("countersigned by 3 of the 4 helpers", said)) == 2
    assert journal.read_bytes() == before
    assert main(["inspect", str(site), "--metrics"]) == 0
    assert {"analytic_secagg_receipts 3", "analytic_secagg_receipts_bad 1"} <= {*capsys.readouterr().out.splitlines()}
    for bad in "01":
        receipt.with_stem(bad * 16).unlink()
    assert main(["inspect", str(site.parents[1] / "helper-103" / "site.toml")]) == 0
    assert "helper 103: it helped to release 2 totals, of 4, 4 clients" in capsys.readouterr().out

    press(page, "rows")
    gone = press(page, "kill", "site-3")
    assert [party["name"] for party in gone["parties"] if party["process"] is None] == ["site-3"]
    without = press(page, "run", "masked")
    assert (without["survivors"], without["away"]) == ([1, 2, 4], [3])
    assert without["model"] == without["pooled"]
    press(page, "start", "site-3")
    again = press(page, "run", "masked")
    assert any(
        "by fewer than 3 clients, which would expose them: combined, these leave 1" in told
        for told in again["run"]["seen"]
    )


@pytest.mark.parametrize(
    ("what", "whom", "reason"),
    [
        ("corrupt", "site-1", "helpers can be made malicious here"),
        ("run", "none", "a mode is one of"),
        ("kill", "site-9", "there is no site-9; it is one of helper-101, "),
        ("dance", "", "one can run, rows, kill, start, corrupt here"),
    ],
)
def test_what_cannot_be_done_is_said(page: PageServer, what: str, whom: str, reason: str) -> None:
    code, said = ask(page, "POST", f"/act?token={page.token}", json.dumps({"what": what, "whom": whom}))
    assert code == 409
    assert reason in said


def test_nothing_is_done_beside_a_run(page: PageServer) -> None:
    page.demonstration.act("run", "plain")
    assert ask(page, "POST", f"/act?token={page.token}", '{"what": "run", "whom": "plain"}')[0] == 409
    page.demonstration.wait()


@pytest.mark.parametrize(
    ("method", "path", "body", "host", "code"),
    [
        ("GET", "/", "", "", 403),
        ("GET", "/state?token=x", "", "", 403),
        ("POST", "/act", '{"what": "kill", "whom": "site-1"}', "", 403),
        ("GET", "/state?token={token}", "", "evil.example", 403),
        ("GET", "/file?token={token}", "", "", 404),
        ("POST", "/act?token={token}", "x" * 1001, "", 400),
        ("POST", "/act?token={token}", "[]", "", 400),
        ("POST", "/act?token={token}", "[" * 1000, "", 400),
        ("GET", "ftp://[", "", "", 400),
        ("POST", "ftp://[", "", "", 400),
        ("POST", "/act?token={token}", '{"what": "kill"}', "", 400),
    ],
)
def test_who_has_no_token_or_comes_by_another_name_is_told_nothing(
    page: PageServer, method: str, path: str, body: str, host: str, code: int
) -> None:
    assert ask(page, method, path.format(token=page.token), body, host)[0] == code


def test_the_token_is_for_one_user(page: PageServer) -> None:
    """It stands in no command line, and in a file that nobody else reads."""
    file = _opened(page)
    assert (stat.S_IMODE(file.stat().st_mode), stat.S_IMODE(file.parent.stat().st_mode)) == (0o600, 0o700)
    assert page.address in file.read_text()
    assert page.token not in file.as_uri()


def test_half_a_request_holds_a_thread_for_a_while_alone(page: PageServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page.RequestHandlerClass, "timeout", 0.1)
    with socket.create_connection(("127.0.0.1", page.server_port), timeout=300) as half:
        half.sendall(b"POST /act")
        assert half.recv(1) == b""


def test_the_page_loads_nothing_from_anywhere() -> None:
    text = Path("analytic_secagg/local/page.html").read_text()
    assert Page(text).loaded == ["data:,"]
    assert Page(text).unscoped == []


def until(tab: Browser, expression: str, seconds: float = 300.0) -> Any:
    ends = time.monotonic() + seconds
    while not (found := tab.evaluate(expression)):
        assert time.monotonic() < ends, tab.evaluate("document.body.innerText")
        time.sleep(0.1)
    return found


def run_in(tab: Browser, page: PageServer, mode: str) -> str:
    """Press the button of a mode, wait until the page shows the end of its run, and return how it ended."""
    number = page.demonstration.state()["run"]["number"] + 1
    tab.evaluate(f"document.querySelector('[data-run={mode}]').click()")
    until(tab, f"document.querySelector('#run-title').textContent.includes('run {number},')")
    until(tab, "document.querySelector('#status').dataset.state != 'running'")
    return str(tab.evaluate("document.querySelector('#status').dataset.state"))


def _train_and_train_again(tab: Browser, page: PageServer) -> None:
    """Rows that are in no total, a malicious helper, and the same rows once more."""
    intro = tab.evaluate("document.querySelector('#intro').textContent")
    (part,) = re.findall(f"part (\\d) of {N_BATCHES}", intro)  # as many as the tests before this one have taken
    tab.evaluate("document.querySelector('[data-act=rows]').click()")
    until(tab, f"document.querySelector('#intro').textContent.includes('part {int(part) + 1} of')")
    if tab.evaluate("!!document.querySelector('[data-what=start][data-whom=helper-102]')"):
        tab.evaluate("document.querySelector('[data-what=start][data-whom=helper-102]').click()")
    tab.evaluate("document.querySelector('[data-what=corrupt][data-whom=helper-103]').click()")
    until(tab, "!!document.querySelector('[data-what=start][data-whom=helper-103]')")
    assert run_in(tab, page, "committee") == "done"
    assert tab.evaluate("document.querySelector('#model .good').textContent") == "The same, bit for bit."
    assert "helper-103 sends other sums than" in tab.evaluate("document.querySelector('#seen').textContent")
    assert run_in(tab, page, "committee") == "failed"
    why = "these rows, or some of them, are in 1 total already"
    assert why in tab.evaluate("document.querySelector('#seen').textContent")


@needs_chromium
def test_in_a_real_browser(page: PageServer, tmp_path: Path) -> None:
    with browser(tmp_path) as tab:
        tab.visit(_opened(page).as_uri())
        until(tab, "document.querySelectorAll('#parties tr').length == 9")
        assert tab.evaluate("location.href") == f"http://127.0.0.1:{page.server_port}/"
        assert "4 sites hold rows of the public example breast_cancer" in tab.evaluate("document.body.innerText")
        run_in(tab, page, "plain")
        assert "not in plain" in tab.evaluate("document.querySelector('#seen').textContent")
        tab.evaluate("document.querySelector('[data-what=kill][data-whom=site-2]').click()")
        until(tab, "!!document.querySelector('[data-what=start][data-whom=site-2]')")
        _train_and_train_again(tab, page)
        wide = tab.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
        assert wide
        asked = {urlsplit(event["request"]["url"]).netloc for event in tab.seen("Network.requestWillBeSent")}
        assert asked <= {f"127.0.0.1:{page.server_port}", ""}
        assert tab.seen("Runtime.exceptionThrown", "Log.entryAdded") == []


def test_a_site_with_a_budget_begins_its_ledger(tmp_path: Path) -> None:
    trial = command.make_trial(tmp_path / "trial", bundled("breast_cancer"), DemoOptions(epsilon=2.0))
    ledger = SiteFile.read(trial.site(5) / "site.toml").ledger
    assert ledger is not None
    assert (ledger.budget.epsilon, ledger.spent()) == (pytest.approx(3.2), None)


def test_a_site_that_never_took_part_is_inspected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trial = command.make_trial(tmp_path / "trial", bundled("breast_cancer"), DemoOptions(epsilon=2.0))
    site = str(trial.site(5) / "site.toml")
    assert main(["inspect", site, "--metrics"]) == 0
    assert {"analytic_secagg_totals_rows 0", "analytic_secagg_epsilon_spent 0"} <= {
        *capsys.readouterr().out.split("\n")
    }
    assert main(["inspect", site]) == 0
    told = capsys.readouterr().out
    assert "there is no query log in " in told
    assert not (trial.site(5) / "state").exists()
    assert "client 5: its rows are in 0 totals" in told
    assert "key holder 201: it helped to release 0 totals\n" in told
    assert "0 sums have cost epsilon 0 of 3.2" in told


@pytest.mark.slow
def test_a_budget_runs_out() -> None:
    """Each site pays two runs, and declines the third."""
    with demonstration(DemoOptions(clients=4, pace=0.0, epsilon=2.0)) as shown:
        states = []
        for n in range(3):
            if n:
                shown.act("rows")
            shown.act("run", "masked")
            shown.wait()
            states.append(shown.state())
    assert [state["run"]["failure"] == "" for state in states] == [True, True, False]
    assert states[0]["pooled"] is None
    assert "epsilon" in states[0]["bill"]
    assert 2 < states[1]["spent"]["site-1"] <= states[1]["budget"]
    assert "budget" in states[2]["run"]["seen"][0]


def test_the_command_says_what_is_wrong(page: PageServer, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--dataset", "diabetes"]) == 2
    assert "rows with one class each" in capsys.readouterr().err
    with pytest.raises(UsageError, match=f"cannot be at port {page.server_port}: Address already in use"):
        command._page(page.demonstration, page.server_port)


def test_what_cannot_be_read_after_a_run_ends_it(page: PageServer, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(demonstration: object) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr("analytic_secagg.local.watch.Demonstration._look", full)
    said = press(page, "run", "plain")["run"]
    assert not said["running"]
    assert "what this run left cannot be read: OSError: [Errno 24] Too many open files" in said["failure"]


def test_rows_run_out(page: PageServer) -> None:
    query = f"?token={page.token}"
    said = [ask(page, "POST", f"/act{query}", '{"what": "rows", "whom": ""}') for _ in range(N_BATCHES)]
    assert said[-1] == (409, "all rows of the example have been used; stop this demonstration and start it again")


def test_a_server_that_dies_is_started_again_and_goes_on(page: PageServer) -> None:
    """Before a run, and again while vectors come: over rows that no total holds, of which there is one part left."""
    query, shown = f"?token={page.token}", page.demonstration
    assert ask(page, "POST", f"/act{query}", '{"what": "kill", "whom": "server"}') == (200, "")
    wait_until(lambda: shown.state()["parties"][0]["process"] is None)
    sites = [party for party in shown.state()["parties"] if party["name"].startswith("site-")]
    there = [int(party["name"].removeprefix("site-")) for party in sites if party["process"] is not None]
    assert ask(page, "POST", f"/act{query}", '{"what": "run", "whom": "committee"}') == (200, "")
    wait_until(lambda: any(party["said"] == "its masked numbers" for party in shown.state()["parties"]))
    killed = shown.state()["parties"][0]["process"]
    os.kill(killed, signal.SIGKILL)
    shown.wait()
    after = shown.state()
    assert after["run"]["failure"] == ""
    assert after["model"] == after["pooled"]
    assert after["survivors"] == there
    assert after["parties"][0]["process"] not in (None, killed)


def wait_until(is_so: Callable[[], object]) -> None:
    ends = time.monotonic() + 300
    while not is_so():
        assert time.monotonic() < ends
        time.sleep(0.002)
