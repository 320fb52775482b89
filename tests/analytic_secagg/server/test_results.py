"""What a run leaves: every site has the model and its receipts, some the totals, and all of it verifies offline."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.rehearsed import edit, edit_all, is_exact, proposal, rehearse, run_config, site, weigh, without_client

from analytic import AFL, FedHiP, RowFormat
from analytic.learner import ClientRows, fit_pooled
from analytic.model_files import load_model, save_model
from analytic_secagg.__main__ import main
from analytic_secagg.datasets import bundled
from analytic_secagg.release import ReleaseRefusedError
from analytic_secagg.server.run_settings import RunSettings, template_settings
from analytic_secagg.site.errors import DeclinedError, WireError
from analytic_secagg.site.messages import END, read_end
from analytic_secagg.site.roster import Roster
from analytic_secagg.totals import totals_from_bytes
from analytic_secagg.trial import Trial, fitted_settings
from secagg import IdentityKey, Receipt

CLIENTS = (1, 2, 3, 4, 5)


def name_holders(trial: Trial, holders: list[int]) -> Path:
    """Have the operator name in every copy of the roster who gets totals."""
    for path in trial.folder.rglob("roster.toml"):
        path.write_text(f"totals = {holders}\n" + path.read_text())
    return trial.folder / "server" / "roster.toml"


def at_server(trial: Trial, name: str) -> Path:
    return trial.folder / "server" / "models" / "rehearsal" / name


def at_site(trial: Trial, party: int, pattern: str) -> list[Path]:
    return sorted((trial.folder / f"site-{party}" / "results").glob(pattern))


@pytest.mark.parametrize(
    ("mode", "by", "said"),
    [
        ("masked", "clients", "countersigned by 4 of the 5 clients"),
        ("committee", "helpers", "countersigned by 2 of the 2 helpers"),
        ("masked", "server", "signed by the server alone"),
    ],
)
def test_receipts_are_kept_at_every_site_and_verify_offline(
    trial: Trial, capsys: pytest.CaptureFixture[str], mode: str, by: str, said: str
) -> None:
    roster = name_holders(trial, [2])
    rehearse(trial.folder, run_config(mode=mode, receipts=by))
    model, totals = at_server(trial, "model.safetensors"), at_server(trial, "totals.safetensors")
    capsys.readouterr()
    receipts = [path for party in CLIENTS for path in at_site(trial, party, "*.receipt")]
    assert len(receipts) == 5
    flags = [text for path in receipts for text in ("--receipt", str(path))]
    assert main(["verify", str(model), str(totals), "--roster", str(roster), *flags]) == 0
    told = capsys.readouterr().out
    assert told.count(said) == 6
    assert [told.count(f"of client {party} is among those signed") for party in CLIENTS] == [1] * 5
    assert "equal, bit for bit" in told
    assert Receipt.from_bytes(receipts[0].read_bytes()).opening == b""


def test_every_site_has_the_model_and_only_whom_the_roster_names_the_totals(trial: Trial) -> None:
    edit_all(trial, ('learners = ["afl"]', 'learners = ["fedhip"]'))
    name_holders(trial, [2])
    rehearse(trial.folder, run_config(mode="committee", learner="fedhip"))
    whole = load_model(at_server(trial, "model.safetensors"))
    assert whole.model.total is None, "a model is what people pass on; the totals have a file of their own"
    for party in CLIENTS:
        (model,) = at_site(trial, party, "model-*.safetensors")
        saved = load_model(model)
        weights = hashlib.sha256(saved.learner.weights_bytes(saved.model)).hexdigest()
        assert model.name == f"model-{weights[:16]}.safetensors"
        assert saved.learner.take_apart(saved.model).arrays["weights"].tobytes() == (
            whole.learner.take_apart(whole.model).arrays["weights"].tobytes()
        )
        totals = at_site(trial, party, "totals-*.safetensors")
        assert [path.read_bytes() for path in totals] == (
            [at_server(trial, "totals.safetensors").read_bytes()] if party == 2 else []
        )
        assert (saved.model.total is not None) == (party == 2), "a model that holds the total is given as a total is"


AGREED = {"ridge": "cv", "feature-format": "standardised", "target-format": "agreed"}


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("fedhip", {"ri": 1.0}),
        ("agreed-chosen-fedhip", AGREED),
        ("weighted-agreed-chosen-fedhip", AGREED | {"options": "max_weight=4"}),
    ],
    ids=["stated", "agreed and chosen", "weighed too"],
)
def test_a_regression_is_judged_at_the_sites_and_made_personal_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, changes: dict[str, Any]
) -> None:
    """A run on real targets: the evaluation is that of the pooled rows of who lists it; site 4 does not."""
    trial = Trial.create(tmp_path / "real", bundled("diabetes"), n_sites=5, n_helpers=2, are_rows_public=True)
    fitted = template_settings() | fitted_settings(bundled("diabetes"), 5)
    changes = changes | {"learner": "fedhip", "mode": "masked", "evaluate": True, "allow-low-rank": False}
    edit_all(trial, ('learners = ["afl"]', f'learners = ["{name}", "evaluation-of-targets"]'))
    edit(trial, 4, (', "evaluation-of-targets"', ""))
    name_holders(trial, [2])
    if name.startswith("weighted"):
        weigh(trial)
    rehearse(trial.folder, fitted | changes)
    is_exact(trial, [1, 2, 3, 4, 5])
    saved = load_model(at_server(trial, "model.safetensors"))
    judge: Any = RunSettings.of(fitted | changes).evaluation(saved.learner, saved.model)
    pooled = fit_pooled(judge, ClientRows.pool([trial.test_rows[party] for party in (1, 2, 3, 5)]))
    said = json.loads(at_server(trial, "evaluation.json").read_text())
    assert said.pop("survivors") == [1, 2, 3, 5]
    assert said == json.loads(json.dumps(pooled.figures))
    assert 0.3 < said["r2"][0] < 0.7
    assert all(len(at_site(trial, party, "model-*")) == 1 for party in CLIENTS), "the site that declined has it too"

    assert [len(at_site(trial, party, "evaluation-*")) for party in CLIENTS] == [0, 1, 0, 0, 0]
    kept = load_model(at_site(trial, 2, "evaluation-*")[0])
    assert kept.learner.weights_bytes(kept.model) == judge.weights_bytes(pooled)

    (model,), site_file = at_site(trial, 2, "model-*"), trial.folder / "site-2" / "site.toml"
    given, own = load_model(model).model, tmp_path / "personal.safetensors"
    capsys.readouterr()
    assert main(["personalise", str(model), str(site_file), "--alpha", "3", "--output", str(own)]) == 0
    told = capsys.readouterr().out
    learner: Any = saved.learner
    (expected,) = learner.personalise(given, trial.rows[2], [3.0])
    assert load_model(own).model.weights.tobytes() == expected.weights.tobytes()
    assert told.count("rows for judging, told nobody") == 2
    of_several = ["personalise", str(model), str(site_file), "--alpha", "0,3,30", "--output", str(own)]
    assert main(of_several) == (0 if name == "agreed-chosen-fedhip" else 2)
    told, refused = capsys.readouterr()
    if refused:
        assert f"this model is of {name}: name one" in refused.replace("\n", " ")
    else:
        path = learner.choose_alpha(given, trial.rows[2], [0.0, 3.0, 30.0])
        assert told.count("of a row of this site, over 5 folds") == 3
        assert f"the personal model with alpha {path.choice:g}" in told
    (without,) = at_site(trial, 1, "model-*")
    assert main(["personalise", str(without), str(site_file)]) == 2
    assert "with its total, which a run gives to whom the roster's totals name" in capsys.readouterr().err


def test_personalising_needs_a_model_of_fedhip_and_rows_and_judges_where_some_are_kept(
    trial: Trial, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    site_file, own = trial.site(2) / "site.toml", tmp_path / "own.safetensors"
    for learner in (AFL, FedHiP):
        made: Any = learner(
            n_features=64, n_targets=10, feature_format=RowFormat.parse("UQ5.11"), max_rows=2000, ridge=1.0
        )
        save_model(tmp_path / made.name, made, fit_pooled(made, trial.rows[2]), with_totals=True)
    with np.load(trial.site(2) / "rows.npz") as archive:
        np.savez(trial.site(2) / "rows.npz", x_train=archive["x_train"], y_train=archive["y_train"])
    words = [str(site_file), "--output", str(own)]
    assert main(["personalise", str(tmp_path / "fedhip"), *words]) == 0
    assert "for judging" not in capsys.readouterr().out
    assert main(["personalise", str(tmp_path / "afl"), *words]) == 2
    assert "holds a model of afl, and must hold one of fedhip" in " ".join(capsys.readouterr().err.split())
    without_client(trial, 2)
    assert main(["personalise", str(tmp_path / "fedhip"), *words]) == 2
    assert "has no [client], and so no rows" in capsys.readouterr().err


def test_results_that_the_server_did_not_sign_are_not_kept(trial: Trial) -> None:
    """Whoever carries the end of a run to a site changes nothing of what the site keeps."""
    ends = list[bytes]()

    def tell(party: int, kind: str, content: bytes) -> bytes:
        if (party, kind) != (1, END):
            return content
        ends.append(content)
        return b"lost on the way"

    rehearse(trial.folder, run_config(mode="committee"), tell=tell)
    session, results, _ = read_end(ends[0])
    assert results is not None
    results.check(Roster.read(trial.folder / "site-1" / "roster.toml").server, session)
    lies = [
        replace(results, model=results.model + b"!"),
        replace(results, totals=b"totals"),
        replace(results, signature=IdentityKey(b"x" * 32).sign("results of a run", session)),
    ]
    for lie in lies:
        with pytest.raises(WireError, match="not signed by the roster's server"):
            lie.check(Roster.read(trial.folder / "site-1" / "roster.toml").server, session)
    with pytest.raises(WireError, match="nothing of them is kept"):
        site(trial, 1).end(session, lies[0])
    site(trial, 1).end(session, results)  # once: the session is over
    assert at_site(trial, 1, "*") == []
    assert len(at_site(trial, 2, "*")) == 1


def test_clients_that_are_given_totals_are_counted(trial: Trial) -> None:
    """They take their own parts off: a site asks that two others are in every total, and so does the server's gate."""
    name_holders(trial, [1, 2, 3])
    with pytest.raises(DeclinedError, match=r"3 clients are given the totals .* at least 5 clients, .* may hold 3"):
        site(trial, 1).join(proposal())
    settings = run_config(mode="committee")
    for party in CLIENTS:
        path = trial.folder / f"site-{party}" / "roster.toml"
        path.write_text("\n".join(path.read_text().splitlines()[1:]))
    with pytest.raises(ReleaseRefusedError, match="at least 5 clients and has 4"):
        rehearse(trial.folder, settings, is_gone=lambda party, kind: party == 5)


def test_two_receipts_of_one_sum_convict_the_server(
    trial: Trial, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rehearse(trial.folder, run_config(mode="committee", receipts="server"))
    roster = trial.folder / "server" / "roster.toml"
    (one,) = totals_from_bytes(at_server(trial, "totals.safetensors").read_bytes())
    told = Receipt.from_bytes(one.receipt)
    key = IdentityKey(bytes.fromhex((trial.folder / "server" / "identity.key").read_text().strip()))
    other = type(told.statement)(
        configuration=told.statement.configuration,
        survivors=told.statement.survivors,
        uploads=told.statement.uploads,
        total=bytes(32),
    )
    twin = Receipt(statement=other, signature=key.sign("receipt", *other.parts))
    (tmp_path / "twin.receipt").write_bytes(twin.to_bytes())
    (own,) = at_site(trial, 1, "*.receipt")
    flags = ["--roster", str(roster), "--receipt", str(own)]
    assert main(["verify", *flags]) == 0
    assert main(["verify", *flags, "--receipt", str(tmp_path / "twin.receipt")]) == 1
    assert "EVIDENCE AGAINST THE SERVER: it signed two different totals" in capsys.readouterr().out
    (tmp_path / "forged.receipt").write_bytes(Receipt(statement=other, signature=told.signature).to_bytes())
    assert main(["verify", *flags, "--receipt", str(tmp_path / "forged.receipt")]) == 1
    said = capsys.readouterr().out
    assert "not signed by this server" in said
    assert "EVIDENCE" not in said


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["model.safetensors"], "needs a model and the totals"),
        (["--roster", "roster.toml"], "needs a model and the totals"),
        (["--receipt", "one.receipt"], "name it with --roster"),
    ],
)
def test_what_is_missing_is_named(arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", *arguments]) == 2
    assert complaint in capsys.readouterr().err


def test_a_site_says_in_its_own_log_which_columns_a_format_hardly_holds(
    trial: Trial, caplog: pytest.LogCaptureFixture
) -> None:
    """Of whole numbers a format keeps all; the rows of two sites are none."""
    for party in (1, 3):
        own = trial.rows[party]
        trial.give_rows(party, ClientRows(own.features + 1 / 3, own.targets))
    rehearse(trial.folder, run_config(mode="committee", **{"feature-format": "UQ5.3"}))
    said = [line.getMessage() for line in caplog.records if line.name == "analytic_secagg.site"]
    warnings = [text for text in said if "keeps less than 8 bits of" in text]
    assert len(warnings) == 2
    assert all("64 of 64 columns of this site's rows: 0, 1, 2, 3, 4," in text for text in warnings)
