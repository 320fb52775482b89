"""Every strategy of few lies against whole sites: what is computed, in whose name, when a signature is asked for."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from leakage.lying_deployment import AGREED, MODES, SETTINGS, VICTIM, Play, world
from leakage.lying_server import Choose, honest, strategies
from support.rehearsed import CLIENTS, rehearse

from analytic_secagg.release import ReleasePolicy, ReleaseRefusedError
from analytic_secagg.server.run_settings import template_settings
from analytic_secagg.site import admission, messages
from analytic_secagg.site.query_log import QueryLog
from analytic_secagg.site.query_log_head import QueryLogHead
from analytic_secagg.totals import read_totals
from analytic_secagg.trial import Trial
from secagg.errors import RemoteProtocolError
from secagg.receipted_sum import ReceiptedParty
from secagg.receipts import Inclusion, Statement

Patch = pytest.MonkeyPatch


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> tuple[Trial, Trial]:
    """Two that differ in the victim's rows alone; all of them fit what was agreed on."""
    folder = tmp_path_factory.mktemp("worlds")
    return world(folder / "one"), world(folder / "other", is_other=True)


def _repeated(chosen: Iterator[int], among: int) -> int:
    return next(chosen)


class AllFoundError(Exception):
    """Nothing more is looked for."""


def found(
    worlds: Sequence[Trial], folder: Path, mode: str, lies: int, looked_for: set[str] | None = None
) -> tuple[set[str], int]:
    """What any strategy of so many lies got, and how many strategies there were; until all that is looked for is."""
    leaks: set[str] = set()

    def play(choose: Choose) -> None:
        made: list[int] = []
        if looked_for and leaks >= looked_for:
            raise AllFoundError

        def noted(among: int) -> int:
            made.append(choose(among))
            return made[-1]

        one = Play(worlds[0], folder / "play", mode, noted)
        leaks.update(one.leaks())
        for other in worlds[1:]:
            again = Play(other, folder / "play", mode, partial(_repeated, iter(made)))
            if again.seen != one.seen:
                leaks.add("who answers depends on a site's rows")

    try:
        return leaks, strategies(play, lies)
    except AllFoundError:
        return leaks, 0


@pytest.mark.parametrize("mode", MODES)
def test_the_oracle_sees_the_total_that_an_honest_server_gets(
    worlds: tuple[Trial, Trial], tmp_path: Path, mode: str
) -> None:
    """Else it would be blind."""
    for one in worlds:
        play = Play(one, tmp_path / "play", mode, honest)
        (released,) = play.released
        assert released.survivors == CLIENTS
        assert not play.leaks()


@pytest.mark.parametrize(
    ("mode", "lies", "fewest"),
    [
        ("masked", 1, 10),
        ("committee", 2, 30),
        pytest.param("masked", 2, 50, marks=pytest.mark.slow),
        pytest.param("committee", 3, 100, marks=pytest.mark.slow),
    ],
)
def test_no_strategy_of_few_lies_gets_more_than_was_agreed_on(
    worlds: tuple[Trial, Trial], tmp_path: Path, mode: str, lies: int, fewest: int
) -> None:
    leaks, n_strategies = found(worlds, tmp_path, mode, lies)
    assert not leaks
    assert n_strategies > fewest


# Plants: one mend less, and the same search finds what it let through


def any_configuration(patch: Patch) -> None:
    """Sites try their rows on whatever is proposed."""
    patch.setattr(admission, "_refused_learner", lambda file, learner: "")


def whoever_speaks(patch: Patch) -> None:
    """Sites read messages that nobody signed."""
    patch.setattr(messages, "is_signed", lambda *said: True)


def signed_too_early(patch: Patch) -> None:
    """A client countersigns before it was asked to agree to survivors."""
    check = ReceiptedParty._check

    def unasked(self: ReceiptedParty, told: Statement, inclusion: Inclusion | None) -> None:
        try:
            check(self, told, inclusion)
        except RemoteProtocolError as error:
            if "before this client was asked" not in str(error):
                raise

    patch.setattr(ReceiptedParty, "_check", unasked)


def no_journal(patch: Patch) -> None:
    """Owners allow every further total."""
    patch.setattr(QueryLog, "_take_one_allowed", lambda self, reason, subject: None)


def forgetful(patch: Patch) -> None:
    """Sites go on without a journal that they had."""
    patch.setattr(QueryLogHead, "problem", lambda self, **options: "")


ROW = "a column's line of a total is one row"
OF_TWO = {f"{line} of a difference of totals is one site's" for line in ("a column's line", "a class")}
BIT = "who answers depends on a site's rows"
UNSIGNED = "a site answers what the server did not sign"
UNAGREED = "a client countersigned what it had not agreed to"

PLANTS: dict[str, tuple[Callable[[Patch], None], str, int, set[str]]] = {
    "another configuration, masked": (any_configuration, "masked", 1, {ROW, BIT}),
    "another configuration, committee": (any_configuration, "committee", 1, {ROW, BIT}),
    "unsigned invitations, masked": (whoever_speaks, "masked", 1, {UNSIGNED}),
    "unsigned invitations, committee": (whoever_speaks, "committee", 1, {UNSIGNED}),
    "early countersignatures": (signed_too_early, "masked", 1, {UNAGREED}),
    "no journal": (no_journal, "committee", 2, OF_TWO),
    "journals that are lost and not missed": (forgetful, "committee", 2, OF_TWO),
}


@pytest.mark.parametrize("plant", PLANTS)
def test_a_mend_that_is_taken_away_is_missed(
    worlds: tuple[Trial, Trial], tmp_path: Path, monkeypatch: Patch, plant: str
) -> None:
    weaken, mode, lies, expected = PLANTS[plant]
    weaken(monkeypatch)
    assert found(worlds if BIT in expected else worlds[:1], tmp_path, mode, lies, expected)[0] == expected


def test_a_class_of_one_row_shows_in_every_total(tmp_path: Path) -> None:
    """No site can tell that nobody else has the class: the server's gates judge it, and a lying server has none."""
    rare = world(tmp_path / "rare", has_lone_class=True)
    for mode in MODES:
        assert Play(rare, tmp_path / "play", mode, honest).leaks() == {"a class of a total is one row"}


def test_an_honest_server_makes_no_model_of_a_class_of_one_row(
    worlds: tuple[Trial, Trial], tmp_path: Path, monkeypatch: Patch
) -> None:
    """Its gate does; without the gate the row is in the total that it files, bit for bit."""
    rare, settings = world(tmp_path / "rare", has_lone_class=True), template_settings() | SETTINGS | {"dropout": 0.4}
    filed = Path("server", "models", "rehearsal", "totals.safetensors")
    for trial, place in ((worlds[0], "usual"), (rare, "gated"), (rare, "ungated")):
        shutil.copytree(trial.folder, tmp_path / place)
    rehearse(tmp_path / "usual", settings)
    with pytest.raises(ReleaseRefusedError, match=r"^class rows: 1 of 2 classes"):
        rehearse(tmp_path / "gated", settings)
    assert not (tmp_path / "gated" / filed).exists()
    monkeypatch.setattr(ReleasePolicy, "_concerns", lambda self, *total: iter(()))
    rehearse(tmp_path / "ungated", settings)
    (result,) = read_totals(tmp_path / "ungated" / filed)
    row = AGREED.feature_format.quantise(rare.rows[VICTIM].features[:1])
    np.testing.assert_array_equal(AGREED.spec.from_vector(result.total).cross[:, 1], row[0])
