"""A whole deployment as one folder, for a trial on one host: keys, roster, certificates, sites with real rows."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import numpy as np

from analytic.learner import ClientRows
from analytic.row_format import RowFormat
from federation.datasets import Dataset
from federation.errors import UsageError
from federation.flower.certificates import loopback_certificates, node_key_pair
from federation.modes import MODES
from federation.site.errors import SiteFileError
from federation.site.key_files import write_new, write_secret
from federation.site.roster import Roster
from secagg import PartyId, os_entropy
from secagg.beacon import BEACON_BYTES
from secagg.primitives.identity import IdentityKey

FIRST_HELPER: PartyId = 101
KEY_HOLDER_PARTY: PartyId = 201

MIN_SURVIVORS = 3
"""What the trial's sites demand of every total."""

MIN_SITES = 4
"""Fewest with which every private mode can promise the survivors that the trial's sites demand."""

DROPOUT = 0.4
"""Largest fraction of sites that the trial's app lets vanish."""

PRIVATE_MODES = [name for name in MODES if name != "plain"]

SITE = """\
roster = "roster.toml"
state = "state"

[client]
party = {party}
identity = "identity.key"
data = "rows.npz"
learners = ["afl"]

[policy]
modes = [{modes}]
min_clients = {n_sites}
min_survivors = {min_survivors}
min_corruption = 0.0
accept_confirmed_guesses = true
{journal}"""

JOURNAL = """
[journal]
further_totals = 1000000  # the rows of a trial are public; a deployment leaves this out
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

CONFIG = """\
[superlink]
default = "trial"

[superlink.trial]
address = "{address}"
root-certificates = "{authority}"

[superlink.local]
address = ":local-in-memory:"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """Where everything of a trial lies.

    Args:
        folder: the trial's folder.
        rows: each client's training rows.
        test_rows: the rows that each keeps for judging models.
    """

    folder: Path
    rows: Mapping[PartyId, ClientRows]
    test_rows: Mapping[PartyId, ClientRows]

    @classmethod
    def create(cls, folder: Path, dataset: Dataset, *, n_sites: int, n_helpers: int, address: str) -> Trial:
        """A fresh folder: ``app``, ``tls``, ``server`` and ``site-1`` to ``site-n``.

        The first sites are helpers too, and the last is the key holder.

        Raises:
            SiteFileError: the folder is there already or cannot be made, or there are more helpers than sites.
        """
        if not MIN_SURVIVORS <= n_sites >= n_helpers >= 0:
            raise SiteFileError(
                f"a trial needs at least {MIN_SURVIVORS} sites and no more helpers than sites, not {n_sites} sites and "
                f"{n_helpers} helpers"
            )
        with new_folder(folder):
            return cls._fill(folder, dataset, n_sites, n_helpers, address)

    @classmethod
    def _fill(cls, folder: Path, dataset: Dataset, n_sites: int, n_helpers: int, address: str) -> Trial:
        copy_template(folder / "app")
        _fit_app(folder / "app" / "pyproject.toml", dataset, n_sites)
        server = IdentityKey.generate(os_entropy)
        identities = {party: IdentityKey.generate(os_entropy) for party in range(1, n_sites + 1)}
        helpers = {FIRST_HELPER + place: IdentityKey.generate(os_entropy) for place in range(n_helpers)}
        key_holder = IdentityKey.generate(os_entropy)
        roster = Roster(
            server=server.public,
            beacon=os_entropy(BEACON_BYTES),
            corrupt_helpers=(n_helpers - 1) // 3 if n_helpers > 3 else None,
            clients={party: key.public for party, key in identities.items()},
            beside={
                "helpers": {party: key.public for party, key in helpers.items()},
                "key_holder": {KEY_HOLDER_PARTY: key_holder.public},
            },
        )
        _write_tls(folder, address)
        _write_server(folder / "server", server, roster)
        rows = _deal(dataset.training, n_sites)
        test_rows = _deal(ClientRows(dataset.x_test, dataset.y_test), n_sites)
        for party, (identity, helper) in enumerate(
            zip(identities.values(), [*helpers.items(), *[None] * (n_sites - n_helpers)], strict=True), start=1
        ):
            _write_site(folder / f"site-{party}", identity, helper, roster, (rows[party], test_rows[party]), party)
        _add_key_holder(folder / f"site-{n_sites}", key_holder)
        return cls(folder=folder, rows=rows, test_rows=test_rows)


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


def copy_template(folder: Path) -> None:
    """Put the thin Flower app there.

    Raises:
        SiteFileError: something is there already, or the system refused.
    """
    with new_folder(folder), as_file(files("federation.flower") / "template") as template:
        shutil.copytree(template, folder, dirs_exist_ok=True)


def check_address(text: str) -> str:
    """An address of this host that the trial's certificate is for.

    Raises:
        UsageError: another host, or no port.
    """
    if not re.fullmatch("(127.0.0.1|localhost):[1-9][0-9]{0,4}", text) or int(text.rpartition(":")[2]) >= 1 << 16:
        raise UsageError(f"a trial's certificate is for 127.0.0.1:PORT or localhost:PORT, not {text!r}")
    return text


def _fit_app(path: Path, dataset: Dataset, n_sites: int) -> None:
    """Settings that these rows and so many sites can keep.

    The rows of a trial are public, and so few sites can bear dropouts or colluders, not both: it takes the dropouts.
    """
    settings = {
        "n-features": dataset.n_features,
        "n-classes": dataset.n_classes,
        "feature-format": f'"{RowFormat.covering(dataset.x_train)}"',
        "target-format": f'"{RowFormat.covering(dataset.y_train) if dataset.is_regression else "labels"}"',
        "corruption": 0.0,
        "dropout": min(DROPOUT, (n_sites - MIN_SURVIVORS) / n_sites),
    }
    text = path.read_text(encoding="utf-8")
    for key, value in settings.items():
        text = re.sub(rf"^{key} = .*$", f"{key} = {value}", text, count=1, flags=re.MULTILINE)
    path.write_text(text, encoding="utf-8")


def _deal(rows: ClientRows, n_sites: int) -> dict[PartyId, ClientRows]:
    order = np.random.default_rng(0).permutation(len(rows))
    return {party: rows.taken(places) for party, places in enumerate(np.array_split(order, n_sites), start=1)}


def _write_tls(folder: Path, address: str) -> None:
    authority, certificate, key = loopback_certificates()
    tls, home = folder / "tls", folder / "operator-home"
    tls.mkdir()
    home.mkdir()
    (tls / "ca.crt").write_bytes(authority)
    (tls / "server.crt").write_bytes(certificate)
    write_new(tls / "server.key", key)
    config = CONFIG.format(address=address, authority=(tls / "ca.crt").resolve())
    (home / "config.toml").write_text(config)


def _write_server(folder: Path, identity: IdentityKey, roster: Roster) -> None:
    folder.mkdir()
    write_secret(folder / "identity.key", identity.secret)
    (folder / "roster.toml").write_text(roster.to_toml())
    (folder / "server.toml").write_text(SERVER)


def _write_site(
    folder: Path,
    identity: IdentityKey,
    helper: tuple[PartyId, IdentityKey] | None,
    roster: Roster,
    rows: tuple[ClientRows, ClientRows],
    party: PartyId,
) -> None:
    folder.mkdir(mode=0o700)
    write_secret(folder / "identity.key", identity.secret)
    modes = ", ".join(f'"{mode}"' for mode in PRIVATE_MODES)
    text = SITE.format(
        party=party, n_sites=len(roster.clients), modes=modes, min_survivors=MIN_SURVIVORS, journal=JOURNAL
    )
    if helper is not None:
        write_secret(folder / "helper.key", helper[1].secret)
        text += HELPER.format(party=helper[0])
    (folder / "site.toml").write_text(text)
    (folder / "roster.toml").write_text(roster.to_toml())
    train, test = rows
    arrays: dict[str, Any] = {
        "x_train": train.features,
        "y_train": train.targets,
        "x_test": test.features,
        "y_test": test.targets,
    }
    if train.weights is not None:
        arrays["w_train"] = train.weights
    np.savez(folder / "rows.npz", **arrays)
    secret, public = node_key_pair()
    write_new(folder / "node", secret)
    (folder / "node.pub").write_bytes(public)


def _add_key_holder(folder: Path, identity: IdentityKey) -> None:
    write_secret(folder / "key-holder.key", identity.secret)
    with (folder / "site.toml").open("a", encoding="utf-8") as file:
        file.write(KEY_HOLDER.format(party=KEY_HOLDER_PARTY))
