"""What a server may have computed of a site's rows: what their owners agreed on, and nothing of its own choice."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.commands import flower
from support.crashes import KilledError
from support.lying_server import LyingServer
from support.rehearsed import (
    CLIENTS,
    agree_on,
    database,
    edit_all,
    events,
    pin,
    pin_run,
    proposal,
    rehearse,
    run_config,
    site,
    state,
)

from analytic import AFL, ClientRows, ColumnMap, RowFormat
from analytic.statistics import FloatMatrix
from analytic_secagg.__main__ import main
from analytic_secagg.configurations import configuration_digest
from analytic_secagg.datasets import bundled
from analytic_secagg.server.run_settings import RunSettings
from analytic_secagg.site.errors import SiteFileError, UnreachableError
from analytic_secagg.site.proposal import TrainingProposal
from analytic_secagg.site.provenance import Recipe, recipe_of
from analytic_secagg.site.roster import Roster
from analytic_secagg.site.session import Session
from analytic_secagg.site.site_file import SiteFile
from analytic_secagg.site.store import FILE
from analytic_secagg.site.table import TableSchema
from analytic_secagg.trial import OPEN, Trial, fitted_settings
from secagg import PartyId
from secagg.errors import ConfigurationError, SecureSumError

FORMAT = RowFormat.parse("UQ0.20")
DATA = bundled("breast_cancer")


# --- the attack: a column's scale of the server's choice ---------------------------------------------------------


def crafted() -> tuple[AFL, int, FloatMatrix]:
    """A learner whose total shows a row: one column is scaled so that a single row of all clients exceeds one unit.

    Every other entry of the column truncates to nothing, so the column's line of the total Gram is that row itself.
    Helpers, masks and journals see a usual total.
    """
    rows = DATA.x_train
    column, unit = next(
        (column, unit)
        for column in range(rows.shape[1])
        for unit in 2.0 ** np.arange(-10, 13)
        if np.count_nonzero(rows[:, column] >= unit) == 1 and rows[:, column].max() < 2 * unit
    )
    exponents = np.ceil(np.log2(rows.max(axis=0) * 1.01)).astype(int)
    exponents[column] = FORMAT.fraction_bits + int(np.log2(unit))
    columns = ColumnMap(exponents=tuple(map(int, exponents)))
    learner = AFL(
        n_features=rows.shape[1], n_targets=2, feature_format=FORMAT, max_rows=1000, max_clients=5, columns=columns
    )
    return learner, column, rows[np.argmax(rows[:, column])]


@pytest.fixture
def patients(tmp_path: Path) -> Trial:
    return Trial.create(tmp_path / "patients", DATA, n_sites=5, n_helpers=0)


def test_a_crafted_column_reads_a_patient_out_of_one_total_where_a_site_lets_the_server_choose(
    patients: Trial,
) -> None:
    edit_all(patients, ('learners = ["afl"]', 'learners = ["afl"]\nconfigurations = "any"'))
    learner, column, patient = crafted()
    result = LyingServer(patients).total(proposal(learner))
    gram = learner.spec.from_vector(result.total).gram
    others = np.arange(len(patient)) != column
    assert learner.columns is not None
    exponents = np.array(learner.columns.exponents)[others]
    read = np.ldexp(gram[column, others].astype(float), exponents - FORMAT.fraction_bits)
    assert np.abs(read - patient[others]).max() < 0.01


def test_no_site_takes_part_in_what_its_owner_did_not_agree_to(patients: Trial) -> None:
    learner, _, _ = crafted()
    server = LyingServer(patients)
    with pytest.raises(SecureSumError):
        server.total(proposal(learner))
    assert server.refused.keys() == set(CLIENTS)
    for said in server.refused.values():
        assert f"the server proposes another one, {configuration_digest(learner).hex()}" in said
        assert '"exponents": [' in said  # what was proposed stands in the site's own log
        assert "add it to configurations in the roster" in said
    for party in CLIENTS:
        with database(patients, party) as file:
            assert file.execute("SELECT count(*) FROM computations WHERE NOT is_made").fetchall() == [(0,)]
    settings = {name.replace("_", "-"): value for name, value in fitted_settings(DATA, 5).items()}
    rehearse(patients.folder, run_config(**settings))  # what the trial's roster agrees to


@pytest.mark.parametrize("change", [{"ridge": 2.0}, {"max-rows": 99999}, {"feature-format": "UQ5.10"}, {"ri": 1.0}])
def test_every_setting_that_is_computed_with_is_agreed_on(trial: Trial, change: dict[str, Any]) -> None:
    pin_run(trial)
    with pytest.raises((SecureSumError, UnreachableError)):
        rehearse(trial.folder, run_config(**change))
    rehearse(trial.folder, run_config())
    (said,) = (event for event in events(trial) if event["event"] == "configuration")
    assert said["agreed"]


def test_a_site_that_agreed_to_nothing_hears_so(trial: Trial, capsys: pytest.CaptureFixture[str]) -> None:
    pin_run(trial)
    path = str(trial.site(1) / "site.toml")
    assert main(["health", path]) == 0
    (pinned,) = Roster.read(trial.site(1) / "roster.toml").configurations
    assert f"ok   configurations: {pinned.hex()}" in capsys.readouterr().out
    pin(trial)
    assert main(["health", path]) == 1
    assert "FAIL configurations: the roster, or [client], must name configurations" in capsys.readouterr().out
    assert main(["check-site", path]) == 2
    with pytest.raises((SecureSumError, UnreachableError)):
        rehearse(trial.folder, run_config())


def test_a_site_need_not_list_learners_that_were_agreed_on(trial: Trial) -> None:
    """A list of names narrows what was agreed on; where the server may choose, the plain closed form alone."""
    pin_run(trial, learner="fedhip")
    edit_all(trial, ('learners = ["fedhip"]\n', ""))
    rehearse(trial.folder, run_config(learner="fedhip"))
    edit_all(trial, ("\n[policy]", 'learners = ["afl"]\n\n[policy]'))
    with pytest.raises((SecureSumError, UnreachableError)):
        rehearse(trial.folder, run_config(learner="fedhip"))
    edit_all(trial, ('learners = ["afl"]\n', 'configurations = "any"\n'))
    with pytest.raises((SecureSumError, UnreachableError)):
        rehearse(trial.folder, run_config(learner="fedhip"))


def test_a_sites_own_file_goes_before_the_roster(trial: Trial) -> None:
    pin_run(trial)
    (other,) = agree_on_nothing_but(trial, ridge=2.0)
    rehearse(trial.folder, run_config(ridge=2.0))
    with pytest.raises((SecureSumError, UnreachableError)):
        rehearse(trial.folder, run_config())
    assert SiteFile.read(trial.site(1) / "site.toml").configurations == (other,)


def agree_on_nothing_but(trial: Trial, **settings: Any) -> tuple[bytes]:
    digest = configuration_digest(RunSettings.of(run_config(**settings)).build_learner(len(CLIENTS)))
    own = f'learners = ["afl"]\nconfigurations = ["{digest.hex()}"]'
    edit_all(trial, ('learners = ["afl"]', own))
    return (digest,)


# --- models of the server's choice -------------------------------------------------------------------------------

DEEP = {"learner": "deepafl", "options": "n_layers=1 d_phi=16 d_f=8"}


def test_a_later_exact_sum_needs_the_owners_trust(trial: Trial) -> None:
    """A site cannot tell whether a layer is what followed from the total before."""
    pin_run(trial, **DEEP)
    with pytest.raises((SecureSumError, UnreachableError)):
        rehearse(trial.folder, run_config(**DEEP))
    edit_all(trial, ('learners = ["deepafl"]', 'learners = ["deepafl"]\nunverified_models = ["deepafl"]\n'))
    with pytest.raises((SecureSumError, UnreachableError)):  # the first sum of that run is in the journal
        rehearse(trial.folder, run_config(**DEEP | {"ridge": 3.0}))
    rehearse(trial.folder, run_config(**DEEP))


def test_a_later_sum_with_noise_needs_none(trial: Trial) -> None:
    """What noise lets a total tell is bounded, whatever is computed."""
    settings = DEEP | {"epsilon": 8.0, "noise-survivors": 3, "noise-colluders": 1}
    pin_run(trial, **settings)
    ledger = '\n[privacy]\nepsilon = 20.0\nrun_epsilon = 8.0\nledger = "ledger"\n'
    edit_all(trial, ("[policy]", f"{ledger}\n[policy]"))
    for party in CLIENTS:
        assert main(["ledger", str(trial.site(party) / "site.toml")]) == 0
    rehearse(trial.folder, run_config(**settings))


def test_an_evaluation_is_of_the_servers_model(trial: Trial) -> None:
    """What is counted of its scores is agreed on all the same: bins of the server's choice would show every row."""
    settings = RunSettings.of(run_config(evaluate=True))
    pin_run(trial)
    edit_all(trial, ('learners = ["afl"]', 'learners = ["afl", "evaluation-of-classes"]'))
    with pytest.raises((SecureSumError, UnreachableError)):
        rehearse(trial.folder, run_config(evaluate=True))
    edit_all(trial, ("\n[policy]", 'unverified_models = ["evaluation-of-classes"]\n\n[policy]'))
    with pytest.raises((SecureSumError, UnreachableError)):
        rehearse(trial.folder, run_config(evaluate=True))
    learner = settings.build_learner(5)
    pin(trial, learner, settings.evaluation(learner, None))
    rehearse(trial.folder, run_config(evaluate=True))


# --- refusals as an oracle ---------------------------------------------------------------------------------------


def tries(trial: Trial, party: PartyId) -> Iterator[tuple[int, bool]]:
    """Most rows of the server's choice, and whether the site answers: bisection for how many it has."""
    low, high = 0, 8192
    while high - low > 1:
        middle = (low + high) // 2
        learner = AFL(
            n_features=64, n_targets=10, feature_format=RowFormat.parse("UQ5.11"), max_rows=middle, max_clients=5
        )
        server = LyingServer(trial)
        with suppress(SecureSumError):
            server.total(proposal(learner))
        does_fit = party not in server.refused
        yield middle, does_fit
        low, high = (low, middle) if does_fit else (middle, high)


def test_refusals_tell_only_so_much(trial: Trial) -> None:
    """Where the server may choose, each refusal says something of a site's rows; after four it hears nothing more."""
    edit_all(trial, (OPEN, 'configurations = "any"\n\n[journal]\nfurther_totals = 1000\n'))
    found, n_rows = list(tries(trial, 3)), len(trial.rows[3])
    refused = [middle for middle, does_fit in found if not does_fit]
    assert len(refused) > 3
    assert all(middle // 5 < n_rows for middle in refused[:4])  # a site may hold an equal share
    assert not any(does_fit for middle, does_fit in found[found.index((refused[3], False)) + 1 :])
    with database(trial, 3) as file:
        assert file.execute("SELECT count(*) FROM computations WHERE NOT is_made").fetchall() == [(4,)]
    server = LyingServer(trial)
    with suppress(SecureSumError):
        server.total(proposal(RunSettings.of(run_config()).build_learner(5)))
    assert "4 computations of these rows ended in no vector" in server.refused[3]
    assert "raise refused_tries under [journal]" in server.refused[3]


def test_a_process_that_dies_over_a_computation_has_tried_it(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a server could have a site run out of memory, which is a refusal too."""
    edit_all(trial, (OPEN, 'configurations = "any"\n'))
    proposed = proposal(RunSettings.of(run_config()).build_learner(5), mode="plain", dropout=0.0, min_survivors=3)
    edit_all(trial, ("modes = [", 'modes = ["plain", '))

    def dies(self: AFL, model: object, rows: ClientRows) -> None:
        raise KilledError

    monkeypatch.setattr(AFL, "client_statistics", dies)
    with pytest.raises(KilledError):
        site(trial, 1).join(proposed)
    with database(trial, 1) as file:
        assert file.execute("SELECT count(*) FROM computations WHERE NOT is_made").fetchall() == [(1,)]
    monkeypatch.undo()
    site(trial, 1).join(
        proposal(RunSettings.of(run_config()).build_learner(5), mode="plain", dropout=0.0, min_survivors=3)
    )
    with database(trial, 1) as file:
        assert file.execute("SELECT count(*) FROM computations WHERE NOT is_made").fetchall() == [(0,)]


# --- files and commands ------------------------------------------------------------------------------------------


def test_the_command_prints_what_the_roster_pins(
    trial: Trial, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = tmp_path / "flower"
    assert flower(["trial", str(folder), "--helpers", "0"]) == 0
    roster, run = folder / "site-1" / "roster.toml", folder / "app"
    capsys.readouterr()
    assert main(["configuration", str(run), str(roster)]) == 0
    said = capsys.readouterr().out
    (pinned,) = Roster.read(roster).configurations
    assert f"configuration {pinned.hex()}\n{roster} agrees to it" in said
    assert '"name": "afl"' in said
    assert main(["configuration", str(run), str(roster), "ridge=0.25"]) == 0
    said = capsys.readouterr().out
    assert "does not agree; if all owners do" in said
    line = said.splitlines()[-1]
    roster.write_text(roster.read_text().replace(f'configurations = ["{pinned.hex()}"]', line))
    assert main(["configuration", str(run), str(roster), "ridge=0.25"]) == 0
    assert "agrees to it" in capsys.readouterr().out
    assert main(["roster", str(roster)]) == 0
    assert all(digest.hex() in capsys.readouterr().out for digest in Roster.read(roster).configurations[:1])


@pytest.mark.parametrize(
    ("key", "value"), [("configurations", '["abc"]'), ("configurations", "3"), ("configurations", '["any"]')]
)
def test_what_is_no_digest_is_refused(trial: Trial, key: str, value: str) -> None:
    edit_all(trial, (OPEN, f"{key} = {value}\n"))
    with pytest.raises(SiteFileError, match="configuration"):
        SiteFile.read(trial.site(1) / "site.toml")


def test_a_roster_says_what_columns_mean(trial: Trial) -> None:
    """Rows of two schemas do not add up to one, and would be summed all the same."""
    folder = trial.site(1)
    (folder / "schema.toml").write_text('[columns.age]\n[columns.ill]\nrole = "target"\ncategories = ["no", "yes"]\n')
    (folder / "rows.csv").write_text("age,ill\n50,no\n60,yes\n")
    text = (folder / "site.toml").read_text().replace('data = "rows.npz"', 'data = "rows.csv"\ncolumns = "schema.toml"')
    (folder / "site.toml").write_text(text)
    roster, own = Roster.read(folder / "roster.toml"), TableSchema.read(folder / "schema.toml").fingerprint
    for agreed in (own, "0" * 64):
        other = roster.model_copy(update={"columns": agreed})
        assert other.fingerprint != roster.fingerprint
        (folder / "roster.toml").write_text(other.to_toml())
        if agreed == own:
            assert len(SiteFile.read(folder / "site.toml").client.rows()) == 2  # type: ignore[union-attr]
        else:
            with pytest.raises(SiteFileError, match=f"agrees on columns {agreed} and this site's schema is {own}"):
                SiteFile.read(folder / "site.toml")


@pytest.mark.parametrize("version", [1, 99])
def test_a_journal_of_another_release_is_left_alone(trial: Trial, version: int) -> None:
    pin_run(trial)
    rehearse(trial.folder, run_config())
    with closing(sqlite3.connect(state(trial, 1) / FILE)) as file:
        file.execute(f"PRAGMA user_version = {version}")
    with pytest.raises(SiteFileError, match="of another release"):
        site(trial, 1).look()
    with pytest.raises(SiteFileError, match="of another release"):
        site(trial, 1).count_totals()


MADE: dict[str, Any] = {
    "backbone": "resnet18",
    "weights": "IMAGENET1K_V1",
    "layers": [],
    "pool": "mean",
    "transform": "imagenet",
    "mirror": False,
    "device": "cpu",
    "torch": "2.9",
}
"""What the command ``features`` stores beside features."""


def make(trial: Trial, party: PartyId, **changes: Any) -> None:
    """Let a site's rows be features that were made so."""
    with np.load(trial.site(party) / "rows.npz") as archive:
        arrays = {name: archive[name] for name in archive.files if name != "settings"}
    np.savez(trial.site(party) / "rows.npz", **arrays, settings=np.array(json.dumps(MADE | changes)))


def recipe(**changes: Any) -> Recipe:
    return Recipe(**{name: (MADE | changes)[name] for name in Recipe.model_fields})


def test_features_of_unlike_backbones_do_not_add_up(trial: Trial, capsys: pytest.CaptureFixture[str]) -> None:
    """Where the roster says nothing no site with such rows takes part: two backbones would be summed all the same."""
    for party in CLIENTS:
        make(trial, party, backbone="resnet18" if party < 5 else "vgg11", device=f"cuda:{party}")
    path = str(trial.site(1) / "site.toml")
    assert main(["check-site", path]) == 2
    said = capsys.readouterr().err
    assert "the roster does not say what everybody makes them with" in said
    agree_on(trial, features=recipe())
    assert Roster.read(trial.site(1) / "roster.toml").features == recipe()
    assert recipe().to_toml() in said
    assert main(["check-site", path]) == 0
    assert "made as the roster says" in capsys.readouterr().out
    assert main(["roster", str(trial.site(1) / "roster.toml")]) == 0
    rehearse(trial.folder, run_config())
    (total,) = (event for event in events(trial) if event["event"] == "sum")
    assert total["survivors"] == [1, 2, 3, 4]


def test_features_that_leave_defaults_unsaid_have_a_recipe_all_the_same(tmp_path: Path) -> None:
    """Archives of other programs say backbone, weights and transform; such rows once passed as of no backbone."""
    short = {name: MADE[name] for name in ("backbone", "weights", "transform")}
    np.savez(tmp_path / "own.npz", settings=np.array(json.dumps(short)))
    assert recipe_of(str(tmp_path / "own.npz")) == recipe()
    np.savez(tmp_path / "own.npz", settings=np.array(json.dumps({"weights": "some"})))
    assert recipe_of(str(tmp_path / "own.npz")) is None


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"backbone": "vgg11"}, 'of backbone "vgg11" and not "resnet18"'),
        ({"weights": "sha256:ab"}, 'of weights "sha256:ab" and not "IMAGENET1K_V1"'),
        ({"transform": "afl", "mirror": True}, 'of transform "afl" and not "imagenet", mirror true and not false'),
        ({"layers": ["layer3"]}, r'of layers \["layer3"\] and not \[\]'),
    ],
)
def test_a_refusal_says_which_part_of_a_recipe_differs(trial: Trial, changes: dict[str, Any], said: str) -> None:
    make(trial, 1)
    agree_on(trial, features=recipe())
    SiteFile.read(trial.site(1) / "site.toml")
    make(trial, 1, device="cuda", torch="2.10")
    SiteFile.read(trial.site(1) / "site.toml")
    make(trial, 1, **changes)
    with pytest.raises(SiteFileError, match=said):
        SiteFile.read(trial.site(1) / "site.toml")
    trial.give_rows(1, trial.rows[1])
    with pytest.raises(SiteFileError, match="are of unknown origin"):
        SiteFile.read(trial.site(1) / "site.toml")


@pytest.mark.parametrize(
    ("ours", "theirs", "said"),
    [
        ({"features": recipe()}, {"features": recipe(weights="other")}, "other weights than this party's roster"),
        ({"features": recipe()}, {}, "transform, mirror than this party's roster; the server states nothing"),
        ({}, {"columns": "ab" * 32}, "other columns than this party's roster; this party's roster states nothing"),
        ({"columns": "ab" * 32}, {"columns": "cd" * 32}, "other columns than"),
    ],
)
def test_provenance_is_in_the_context_of_a_sum(
    trial: Trial, ours: dict[str, Any], theirs: dict[str, Any], said: str
) -> None:
    """Parties whose rosters state other recipes are in other sums, and hear which part differs."""
    roster, model = Roster.read(trial.site(1) / "roster.toml"), proposal().model
    settings = RunSettings.of(run_config())

    def proposed(stated: dict[str, Any]) -> TrainingProposal:
        return settings.proposal(roster.model_copy(update=stated), model, session=bytes(16))

    for stated in (ours, theirs):
        one = proposed(stated)
        assert TrainingProposal.from_bytes(one.to_bytes()) == one
        assert (b"provenance" in one.terms) is bool(stated)
    assert Session.of(proposed(ours), roster.model_copy(update=ours)).protocol.digest != (
        Session.of(proposed(theirs), roster.model_copy(update=theirs)).protocol.digest
    )
    with pytest.raises(ConfigurationError, match=said):
        Session.of(proposed(theirs), roster.model_copy(update=ours))
    crafted = replace(proposed({}), provenance={"x" * 99: "y"})
    with pytest.raises(ConfigurationError, match="states other parts than") as refused:
        Session.of(crafted, roster)
    assert "xxx" not in str(refused.value)
