"""Laws of every engine: whatever carries the messages, and whichever site is lost, a run ends in the same bits.

Each engine runs here in one process, with its own code for messages (``support.engines``). Processes, TLS set-ups, kits
and commands are each engine's own tests, and so is one deployment of real processes for each. What a site does is the
same over each: such laws have all their cases over one engine, and over the others those that need its own code.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.engines import ENGINES, EXTRAS, RUN, Fate, Sites, progress
from support.rehearsed import assert_pooled

from analytic_secagg.__main__ import main
from analytic_secagg.datasets import bundled
from analytic_secagg.modes import MODES
from analytic_secagg.server.run_settings import RunSettings, template_settings
from analytic_secagg.server.server_file import ServerFile
from analytic_secagg.site.errors import REASONS, Refusal, UnreachableError
from analytic_secagg.site.messages import CONTEXT, END, INVITE, STEP, read_messages, read_proposal, write_messages
from analytic_secagg.site.session import Session
from analytic_secagg.site.store import SessionStore
from analytic_secagg.trial import Trial, fitted_settings
from secagg.config import SERVER
from secagg.errors import HelperMissingError, TooFewSurvivorsError
from secagg.wire import MessageType, seal_frame

DATASET = bundled("iris")
ALL = [1, 2, 3, 4, 5]
HELPER, HOLDER = 1, 5
"""The sites of a helper and of the key holder, which are clients too."""

FIRST = ["INVITATION", "ROSTER", "SHARE_DELIVERY", "UNMASK_REQUEST", "SURVIVOR_PROOF"]
LATER = ["INVITATION", "UNMASK_REQUEST", "SURVIVOR_PROOF"]

Run = Callable[..., Sites]
"""Makes a run with these settings and faults."""


def needs(mode: str) -> Any:
    """A mode of the contract, skipped where its extra is not installed."""
    return pytest.param(mode, marks=_needs(mode))


def _needs(mode: str) -> Any:
    missing = MODES[mode].missing_extra
    return pytest.mark.skipif(bool(missing), reason=f"{mode} needs {missing}")


def over(everywhere: Mapping[str, Any], only_once: Mapping[str, Any]) -> Any:
    """Cases by name: some over every engine, the others over one engine each, in turn."""
    names = list(ENGINES)
    cases = [(engine, name, case) for engine in names for name, case in everywhere.items()]
    cases += [(names[place % len(names)], name, case) for place, (name, case) in enumerate(only_once.items())]
    params = [
        pytest.param(engine, case, id=f"{engine}-{name}", marks=[_needs(name)] if name in MODES else [])
        for engine, name, case in cases
    ]
    return pytest.mark.parametrize(("engine", "case"), params, indirect=["engine"])


@pytest.fixture
def trial(tmp_path: Path) -> Trial:
    return Trial.create(tmp_path / "trial", DATASET, n_sites=5, n_helpers=4, are_rows_public=True)


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    for module in EXTRAS.get(request.param, ()):
        pytest.importorskip(module, reason=f"needs the extra: pip install '.[{request.param}]'")
    return str(request.param)


@pytest.fixture
def run(trial: Trial, engine: str, monkeypatch: pytest.MonkeyPatch) -> Run:
    def run(
        *,
        fate: Fate = lambda site, kind, number: "",
        tell: Callable[[int, str, bytes], bytes] = lambda site, kind, content: content,
        deliveries: int = 1,
        **changes: Any,
    ) -> Sites:
        sites = Sites(trial, fate=fate, tell=tell, deliveries=deliveries)
        with monkeypatch.context() as patch:
            ENGINES[engine](trial, settings(**changes), sites, patch)
        return sites

    return run


def settings(**changes: Any) -> dict[str, Any]:
    own = {name.replace("_", "-"): value for name, value in changes.items()}
    return template_settings() | fitted_settings(DATASET, len(ALL)) | own


def edit(trial: Trial, site: int, pattern: str, new: str) -> None:
    path = trial.site(site) / "site.toml"
    text, n_found = re.subn(pattern, new, path.read_text())
    assert n_found == 1
    path.write_text(text)


def output(trial: Trial) -> Path:
    return trial.folder / "server" / "models" / RUN


def assert_exact(trial: Trial, survivors: list[int]) -> None:
    """The model has the bytes of the survivors' pooled rows and of nobody else's, and verifies offline."""
    assert_pooled(output(trial), trial.rows, survivors)
    assert main(["verify", *(str(output(trial) / f"{name}.safetensors") for name in ("model", "totals"))]) == 0


def assert_wiped(trial: Trial, *, but: int = 0) -> None:
    """No site holds a session any more, except one that was not told of the end."""
    for site in {*ALL} - {but}:
        folder = SessionStore(trial.site(site) / "state")
        with folder.locked():
            assert folder.held() == ()


def lost(trial: Trial) -> list[str]:
    return [event["reason"] for event in progress(trial) if event["event"] == "node lost"]


def once(fate: str, *when: object) -> Fate:
    """A fault in one message alone: (site, kind, number)."""
    return lambda *message: fate if message == when else ""


def gone_from(site: int, kind: str, number: int = 1) -> Fate:
    return once("gone", site, kind, number)


@over({mode: mode for mode in ("masked", "committee", "bfv")}, {mode: mode for mode in ("plain", "masked+bfv")})
def test_the_bits_are_those_of_the_pooled_rows(trial: Trial, run: Run, case: str) -> None:
    """And the end of a run leaves no session."""
    for site in ALL:
        edit(trial, site, r"modes = \[", 'modes = ["plain", ')
    sites = run(mode=case)
    assert_exact(trial, ALL)
    assert_wiped(trial)
    assert lost(trial) == []
    assert {site for site, _, _ in sites.said} == {*ALL}


SEVERAL_SUMS = {
    "deepafl": ({"learner": "deepafl", "options": "n_layers=1 d_phi=8 d_f=8", "ridge": 0.01}, 3),
    "chosen-afl": ({"ridge": "cv", "options": "folds=2 ridges=0.1,10 criterion=classes", "allow_low_rank": True}, 2),
}


@over({"deepafl": "deepafl"}, {"chosen-afl": "chosen-afl"})
def test_a_learner_of_several_sums_has_the_same_bits(trial: Trial, run: Run, case: str) -> None:
    """From the second sum of a series on an exchange of keys is spared."""
    changes, n_sums = SEVERAL_SUMS[case]
    for site in ALL:
        edit(trial, site, '"afl"', f'"{case}"')
    run(**changes)
    assert_exact(trial, ALL)
    assert_wiped(trial)
    rounds = [event["round"] for event in progress(trial) if event["event"] == "round opens"]
    assert rounds == [*FIRST, *((n_sums - 1) * LATER), "END"]


def test_one_run_after_another_has_bits_and_sessions_of_its_own(trial: Trial, run: Run) -> None:
    sessions = []
    for _ in range(2):
        run(mode="masked")
        assert_exact(trial, ALL)
        sessions += [one["session"] for one in json.loads((output(trial) / "summary.json").read_text())["sums"]]
    assert len(set(sessions)) == 2


@over(
    {
        "before keys": (INVITE, 1, False),
        "before input": (STEP, 2, False),
        "before the end": (END, 1, True),
    },
    {
        "before shares": (STEP, 1, False),
        "before signature": (STEP, 3, True),
        "before unmasking": (STEP, 4, True),
    },
)
def test_a_site_that_is_gone_is_a_dropout(trial: Trial, run: Run, case: tuple[str, int, bool]) -> None:
    kind, number, is_in_the_sum = case
    run(mode="masked", fate=gone_from(4, kind, number))
    assert_exact(trial, ALL if is_in_the_sum else [1, 2, 3, 5])
    assert_wiped(trial, but=4)


@over(
    {"before the sum": (INVITE, 1), "before the set": (STEP, 2)},
    {"before seeds": (STEP, 1), "before sums": (STEP, 4)},
)
def test_one_of_four_helpers_may_be_gone(trial: Trial, run: Run, case: tuple[str, int]) -> None:
    kind, number = case
    run(mode="committee", fate=gone_from(HELPER, kind, number))
    assert_exact(trial, [2, 3, 4, 5] if kind == INVITE else ALL)


STARTS_AGAIN = pytest.mark.parametrize("engine", [name for name in ENGINES if name != "nvflare"], indirect=True)
"""NVFlare starts no process again for a job that runs: whoever is killed is away until the next job."""


@STARTS_AGAIN
@pytest.mark.parametrize("first", ["before", "after"])
@pytest.mark.parametrize(
    ("mode", "site"), [("committee", HELPER), pytest.param("bfv", HOLDER, marks=needs("bfv").marks)]
)
def test_a_helper_or_key_holder_that_is_killed_and_started_again_goes_on(
    trial: Trial, run: Run, mode: str, site: int, first: str
) -> None:
    """At the first message of each kind, in turn before and after its work; it answers from its files."""
    kinds, ways = [CONTEXT, INVITE, STEP], [first, *({"before", "after"} - {first})]

    def fate(at: int, kind: str, number: int) -> str:
        return ways[kinds.index(kind) % 2] if at == site and kind in kinds and number == 1 else ""

    run(mode=mode, fate=fate)
    assert_exact(trial, ALL)
    assert_wiped(trial)


@over({"after": "after"}, {"before": "before"})
def test_a_client_whose_answer_is_lost_is_a_dropout_and_forgets_at_the_end(
    trial: Trial, run: Run, engine: str, case: str
) -> None:
    run(mode="masked", fate=once(case, 3, STEP, 2))
    assert_exact(trial, [1, 2, 4, 5])
    assert_wiped(trial, but=3 if engine == "nvflare" else 0)


def test_too_few_survivors_leave_no_model_and_go_on_once_they_are_back(trial: Trial, run: Run) -> None:
    def fate(site: int, kind: str, number: int) -> str:
        return "gone" if site in (3, 4, 5) and kind == STEP else ""

    with pytest.raises(TooFewSurvivorsError, match="SEALED_SHARES: 2 of 5"):
        run(mode="masked", fate=fate)
    assert sorted(path.name for path in output(trial).iterdir()) == ["progress.jsonl", "run.sqlite"]
    assert [event["event"] for event in progress(trial)[-2:]] == ["may go on", "failed"]
    run(mode="masked")
    assert_exact(trial, ALL)
    assert_wiped(trial)


def test_too_few_helpers_stop_the_sum_before_any_is_asked(trial: Trial, run: Run) -> None:
    def fate(site: int, kind: str, number: int) -> str:
        return "gone" if site in (1, 2) and kind == INVITE else ""

    with pytest.raises(UnreachableError, match=r"2 of the 4 helpers did not answer \(party 101, 102\)"):
        run(mode="committee", fate=fate)
    assert not any(event.get("round") == "MASK_REQUEST" for event in progress(trial))
    assert sorted(path.name for path in output(trial).iterdir()) == ["progress.jsonl", "run.sqlite"]


@over(
    {"in the sum": (STEP, HelperMissingError, "every helper must answer, and 201 did not")},
    {
        "before it": (CONTEXT, UnreachableError, "key holder 201 did not answer.*no client was asked"),
        "at its begin": (INVITE, UnreachableError, "1 of the 1 helpers did not answer .party 201."),
    },
)
@pytest.mark.skipif(bool(MODES["bfv"].missing_extra), reason=f"bfv needs {MODES['bfv'].missing_extra}")
def test_no_total_is_without_its_key_holder(trial: Trial, run: Run, case: tuple[str, type[Exception], str]) -> None:
    kind, error, message = case
    with pytest.raises(error, match=message):
        run(mode="bfv", fate=gone_from(HOLDER, kind))
    assert sorted(path.name for path in output(trial).iterdir()) == ["progress.jsonl", "run.sqlite"]
    if kind != CONTEXT:  # clients have sent vectors, and wait
        run(mode="bfv")
        assert_exact(trial, ALL)
    assert_wiped(trial, but=HOLDER)


LEAK = "row 3.14159265 of patient 4711"


def _declines(trial: Trial) -> dict[str, Any]:
    edit(trial, 4, r"modes = .*", 'modes = ["committee"]')
    return {}


def _has_no_rows(trial: Trial) -> dict[str, Any]:
    (trial.folder / "leaky_rows.py").write_text(f"def load():\n    raise ValueError({LEAK!r})\n")
    edit(trial, 4, '"rows.npz"', '"leaky_rows:load"')
    return {}


def _forgot(trial: Trial) -> dict[str, Any]:
    def tell(site: int, kind: str, content: bytes) -> bytes:
        if (site, kind) == (4, STEP):
            folder = SessionStore(trial.site(4) / "state")
            with folder.locked():
                for session in folder.held():
                    folder.run("DELETE FROM records WHERE session = ?", session)
                    folder.run("DELETE FROM sessions WHERE id = ?", session)
        return content

    return {"tell": tell}


def _does_not_understand(trial: Trial) -> dict[str, Any]:
    return {"tell": lambda site, kind, content: content[:-1] if site == 4 else content}


def _is_asked_out_of_order(trial: Trial) -> dict[str, Any]:
    """The server signs a request of a later round."""
    server = ServerFile.read(trial.folder / "server" / "server.toml")
    digests = list[bytes]()

    def tell(site: int, kind: str, content: bytes) -> bytes:
        if site != 4 or kind == END:
            return content
        if kind == INVITE:
            digests.append(Session.of(read_proposal(content)[0], server.roster).protocol.digest)
            return content
        early = seal_frame(
            MessageType.UNMASK_REQUEST,
            bytes(4),
            digest=digests[0],
            sender=SERVER,
            recipient=4,
            identity=server.identity,
        )
        return write_messages({4: early}, session=read_messages(content)[0])

    return {"tell": tell}


@over(
    {"declines": (_declines, Refusal.NOT_AGREED), "has no rows": (_has_no_rows, Refusal.FAILED)},
    {
        "forgot": (_forgot, Refusal.NO_SESSION),
        "does not understand": (_does_not_understand, Refusal.BAD_MESSAGE),
        "is asked out of order": (_is_asked_out_of_order, Refusal.ABORTED),
    },
)
def test_a_site_s_refusal_reaches_the_server_as_a_class_of_reasons_and_no_more(
    trial: Trial,
    run: Run,
    case: tuple[Callable[[Trial], Mapping[str, Any]], Refusal],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    prepare, refusal = case
    monkeypatch.syspath_prepend(trial.folder)
    sites = run(mode="masked", **prepare(trial))
    assert_exact(trial, [1, 2, 3, 5])
    assert refusal in [said for site, _, said in sites.said if site == 4]
    assert lost(trial)[0] == REASONS[refusal]
    assert set(lost(trial)) <= set(REASONS.values())
    server = [path.read_bytes() for path in (trial.folder / "server").rglob("*") if path.is_file()]
    assert not any(LEAK.encode() in content for content in server)
    assert LEAK not in caplog.text


@over({mode: mode for mode in ("plain", "committee")}, {mode: mode for mode in ("masked", "bfv")})
def test_no_secret_is_in_what_a_site_sends_or_stores_or_in_a_log(
    trial: Trial, run: Run, case: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Each site's keys, and an entry of its Gram, which a plain sum's message does show."""
    for site in ALL:
        edit(trial, site, r"modes = \[", 'modes = ["plain", ')
    stored = set[bytes]()

    def tell(site: int, kind: str, content: bytes) -> bytes:
        for path in (trial.site(site) / "state").glob("*"):
            assert path.stat().st_mode & 0o077 == 0
            stored.add(path.read_bytes())
        return content

    sites = run(mode=case, tell=tell)
    keys = {
        form
        for key in trial.folder.glob("site-*/*.key")
        for form in (key.read_text().strip().encode(), bytes.fromhex(key.read_text()))
    }
    entries = [_largest_entry(trial, site) for site in ALL]
    sent = b"|".join(said for _, _, said in sites.said if isinstance(said, bytes))
    kept = b"|".join(path.read_bytes() for path in (trial.folder / "server").rglob("*") if path.is_file())
    files = b"|".join(stored)
    assert len(files) > 10_000
    log = caplog.text.encode()
    assert len(keys) == 2 * (5 + 4 + 1)
    assert not [place for place in (sent, kept, files, log) for key in keys if key in place]
    assert not [place for place in (kept, files, log) for entry in entries if entry in place]
    assert [entry in sent for entry in entries] == [case == "plain"] * 5


def _largest_entry(trial: Trial, site: int) -> bytes:
    """Of a site's own vector, as a message of a plain sum writes it."""
    learner = RunSettings.of(settings()).build_learner(len(ALL))
    spec = learner.next_sum(learner.init())
    assert spec is not None
    vector = spec.to_vector(learner.client_statistics(learner.init(), trial.rows[site]))
    return int(np.max(vector)).to_bytes(8, "little")[:5]
