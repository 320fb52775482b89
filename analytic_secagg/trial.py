"""A whole deployment as one folder, for a trial on one host: keys, roster, server, sites with real rows; no engine."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from analytic.learner import ClientRows
from analytic.row_format import RowFormat
from analytic_secagg.configurations import configuration_digest
from analytic_secagg.datasets import Dataset
from analytic_secagg.modes import MODES
from analytic_secagg.server.run_settings import RunSettings, template_settings
from analytic_secagg.site.errors import SiteFileError
from analytic_secagg.site.key_files import write_secret
from analytic_secagg.site.roster import Roster
from analytic_secagg.site.source import SiteTable
from secagg import PartyId, os_entropy
from secagg.beacon import BEACON_BYTES
from secagg.primitives.identity import IdentityKey

FIRST_HELPER: PartyId = 101
KEY_HOLDER_PARTY: PartyId = 201

MIN_SURVIVORS = 3
"""Smallest number of clients that the trial's sites demand of every total."""

DROPOUT = 0.4
"""Largest fraction of sites that the trial's app lets vanish."""

PRIVATE_MODES = [name for name in MODES if name != "plain"]

SITE = """\
roster = "roster.toml"
state = "state"
{client}
[policy]
modes = [{modes}]
min_clients = {n_sites}
min_survivors = {min_survivors}
min_corruption = 0.0
accept_confirmed_guesses = true
"""

CLIENT = """
[client]
party = {party}
identity = "identity.key"
{data}
learners = {learners}
"""

OPEN = """\
configurations = "any"  # the rows of a trial are public; a deployment leaves this to the roster

[journal]
further_totals = 1000000  # and leaves this out
refused_tries = 1000000
"""

HELPER = """
[helper]
party = {party}
identity = "helper.key"
"""

KEY_HOLDER = """
[key_holder]
party = {party}
identity = "key-holder.key"
"""

SERVER = """\
roster = "roster.toml"
identity = "identity.key"
output = "models"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A test deployment in one folder.

    Args:
        folder: the trial's folder.
        rows: each client's training rows.
        test_rows: the rows that each keeps for judging models; none where sites have tables of their own.
    """

    folder: Path
    rows: Mapping[PartyId, ClientRows]
    test_rows: Mapping[PartyId, ClientRows]

    @classmethod
    def create(cls, folder: Path, dataset: Dataset, **settings: Any) -> Trial:
        """A fresh folder that ``fill`` fills.

        Raises:
            SiteFileError: the folder is there already or cannot be made, or as ``fill``.
        """
        with new_folder(folder):
            return cls.fill(folder, dataset, **settings)

    @classmethod
    def fill(
        cls,
        folder: Path,
        dataset: Dataset,
        *,
        n_sites: int,
        n_helpers: int,
        are_helpers_apart: bool = False,
        are_rows_public: bool = False,
        of_clients: str = "",
        settings: Mapping[str, Any] | None = None,
        tables: Sequence[SiteTable] = (),
    ) -> Trial:
        """A folder with ``server``, ``site-1`` to ``site-n`` and, where helpers stand apart, ``helper-101`` and so on.

        The first sites are helpers too if they do not, and the last site is the key holder.

        Args:
            folder: where all that goes.
            dataset: whose rows are dealt to the sites.
            n_sites: how many clients.
            n_helpers: how many helpers of a committee.
            are_helpers_apart: whether helpers are hosts of their own.
            are_rows_public: let sites take part in whatever is computed, as often as they are asked.
            of_clients: more tables for the file of each client.
            settings: of the run that owners agree on, where they differ from ``fitted_settings``.
            tables: of each site in their order, in place of rows that are dealt; ``dataset`` has all their rows.

        Raises:
            SiteFileError: too few sites, or more helpers than sites.
        """
        if not MIN_SURVIVORS <= n_sites >= n_helpers >= 0:
            raise SiteFileError(
                f"a trial needs at least {MIN_SURVIVORS} sites and no more helpers than sites, not {n_sites} sites and "
                f"{n_helpers} helpers"
            )
        server = IdentityKey.generate(os_entropy)
        clients = {party: IdentityKey.generate(os_entropy) for party in range(1, n_sites + 1)}
        helpers = {FIRST_HELPER + place: IdentityKey.generate(os_entropy) for place in range(n_helpers)}
        key_holder = IdentityKey.generate(os_entropy)
        agreed = RunSettings.of(template_settings() | fitted_settings(dataset, n_sites) | dict(settings or {}))
        roster = Roster(
            server=server.public,
            beacon=os_entropy(BEACON_BYTES),
            corrupt_helpers=(n_helpers - 1) // 3 if n_helpers > 3 else None,
            clients={party: key.public for party, key in clients.items()},
            beside={
                "helpers": {party: key.public for party, key in helpers.items()},
                "key_holder": {KEY_HOLDER_PARTY: key_holder.public},
            },
        )
        if tables:
            roster = roster.model_copy(update={"columns": tables[0].schema.fingerprint})
        learner = agreed.federation(roster).learner
        roster = roster.model_copy(update={"configurations": (configuration_digest(learner),)})
        learners = json.dumps(sorted({"afl", learner.name}))
        (folder / "server").mkdir()
        write_secret(folder / "server" / "identity.key", server.secret)
        (folder / "server" / "roster.toml").write_text(roster.to_toml())
        (folder / "server" / "server.toml").write_text(SERVER)
        trial = cls(
            folder=folder,
            rows={party: own.rows() for party, own in enumerate(tables, start=1)} or deal(dataset.training, n_sites),
            test_rows={} if tables else deal(ClientRows(dataset.x_test, dataset.y_test), n_sites),
        )
        for party, identity in clients.items():
            site = trial.site(party)
            site.mkdir(mode=0o700)
            data = tables[party - 1].put_into(site) if tables else 'data = "rows.npz"'
            said = CLIENT.format(party=party, data=data, learners=learners) + (OPEN if are_rows_public else "")
            _write_site(site, roster, said, of_clients)
            write_secret(site / "identity.key", identity.secret)
            if not tables:
                trial.give_rows(party, trial.rows[party])
        for place, (party, identity) in enumerate(helpers.items(), start=1):
            host = folder / f"helper-{party}" if are_helpers_apart else trial.site(place)
            if are_helpers_apart:
                host.mkdir(mode=0o700)
                _write_site(host, roster)
            _add_role(host, HELPER, "helper.key", party, identity)
        _add_role(trial.site(n_sites), KEY_HOLDER, "key-holder.key", KEY_HOLDER_PARTY, key_holder)
        return trial

    def site(self, party: PartyId) -> Path:
        """The folder of a client."""
        return self.folder / f"site-{party}"

    def give_rows(self, party: PartyId, rows: ClientRows) -> None:
        """Let a site hold these training rows from now on."""
        test = self.test_rows[party]
        arrays: dict[str, Any] = {
            "x_train": rows.features,
            "y_train": rows.targets,
            "x_test": test.features,
            "y_test": test.targets,
        }
        if rows.weights is not None:
            arrays["w_train"] = rows.weights
        np.savez(self.site(party) / "rows.npz", **arrays)


@contextmanager
def new_folder(folder: Path) -> Iterator[None]:
    """A folder that is filled in the ``with`` block, and gone again if that fails or is stopped.

    Raises:
        SiteFileError: something is there already, or the system refused.
    """
    try:
        folder.mkdir(mode=0o700, parents=True)
    except FileExistsError:
        raise SiteFileError(f"{folder} must be a new folder and exists already; name another") from None
    except OSError as error:
        raise SiteFileError(f"cannot make the folder {folder}: {error.strerror}; name another place") from error
    try:
        yield
    except OSError as error:
        shutil.rmtree(folder)
        raise SiteFileError(f"cannot fill {folder}: {error.strerror}; free space or name another place") from error
    except BaseException:
        shutil.rmtree(folder)
        raise


def fitted_settings(dataset: Dataset, n_sites: int) -> dict[str, Any]:
    """Settings of a run that these rows and so many sites can keep.

    The rows of a trial are public, and so few sites can bear dropouts or colluders, not both: it takes the dropouts.
    Columns of a table, which have names, are of all sizes, and are standardised by two sums.
    """
    is_table = bool(dataset.columns)
    targets = "labels"
    if dataset.is_regression:
        targets = "agreed" if is_table else str(RowFormat.covering(dataset.y_train))
    return {
        "n-features": dataset.n_features,
        "n-classes": dataset.n_classes,
        "feature-format": "standardised" if is_table else str(RowFormat.covering(dataset.x_train)),
        "target-format": targets,
        "corruption": 0.0,
        "dropout": min(DROPOUT, (n_sites - MIN_SURVIVORS) / n_sites),
    }


def deal(rows: ClientRows, n_parts: int) -> dict[PartyId, ClientRows]:
    """Return rows in as many parts, numbered from 1, the same ones each time."""
    order = np.random.default_rng(0).permutation(len(rows))
    return {party: rows.taken(places) for party, places in enumerate(np.array_split(order, n_parts), start=1)}


def _write_site(folder: Path, roster: Roster, client: str = "", more: str = "") -> None:
    modes = ", ".join(f'"{mode}"' for mode in PRIVATE_MODES)
    text = SITE.format(client=client, n_sites=len(roster.clients), modes=modes, min_survivors=MIN_SURVIVORS)
    (folder / "site.toml").write_text(text + more, encoding="utf-8")
    (folder / "roster.toml").write_text(roster.to_toml())


def _add_role(folder: Path, text: str, key: str, party: PartyId, identity: IdentityKey) -> None:
    """Let a site's file say that it is this party, too."""
    write_secret(folder / key, identity.secret)
    with (folder / "site.toml").open("a", encoding="utf-8") as file:
        file.write(text.format(party=party))
