"""A whole deployment as one folder, for a trial on one host: keys, roster, certificates, sites with real rows."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path

import numpy as np

from analytic.learner import ClientRows
from secagg import PartyId, os_entropy
from secagg.primitives.agreement import KeyPair
from secagg.primitives.identity import IdentityKey
from simulations.data import Dataset
from simulations.flower.certificates import LoopbackCertificates, node_key_pair
from simulations.flower.errors import SiteFileError
from simulations.flower.key_files import write_secret
from simulations.flower.roster import Roster

FIRST_HELPER: PartyId = 101

SITE = """\
roster = "roster.toml"
state = "state"

[client]
party = {party}
identity = "identity.key"
data = "rows.npz"
learners = ["afl"]

[policy]
modes = ["masked", "committee"]
min_clients = {n_sites}
min_survivors = 3
"""

HELPER = """
[helper]
party = {party}
key = "helper.key"
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
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """Where everything of a trial lies.

    Args:
        folder: the trial's folder.
        rows: each client's training rows.
    """

    folder: Path
    rows: Mapping[PartyId, ClientRows]

    @classmethod
    def create(cls, folder: Path, dataset: Dataset, *, n_sites: int, n_helpers: int, address: str) -> Trial:
        """A fresh folder: ``app``, ``tls``, ``server`` and ``site-1`` to ``site-n``; the first sites are helpers too.

        Raises:
            SiteFileError: the folder is there already, or there are more helpers than sites.
        """
        if folder.exists() or n_helpers > n_sites:
            raise SiteFileError(
                f"{folder} must not exist yet, and sites ({n_sites}) be no fewer than helpers ({n_helpers})"
            )
        folder.mkdir(mode=0o700, parents=True)
        copy_template(folder / "app")
        server = IdentityKey.generate(os_entropy)
        identities = {party: IdentityKey.generate(os_entropy) for party in range(1, n_sites + 1)}
        helpers = {FIRST_HELPER + place: KeyPair.generate(os_entropy) for place in range(n_helpers)}
        roster = Roster(
            server=server.public,
            clients={party: key.public for party, key in identities.items()},
            helpers={party: keys.public for party, keys in helpers.items()},
        )
        _write_tls(folder, address)
        _write_server(folder / "server", server, roster)
        rows = _deal(dataset, n_sites)
        for party, (identity, helper) in enumerate(
            zip(identities.values(), [*helpers.items(), *[None] * (n_sites - n_helpers)], strict=True), start=1
        ):
            _write_site(folder / f"site-{party}", identity, helper, roster, rows[party], party)
        return cls(folder=folder, rows=rows)


def copy_template(folder: Path) -> None:
    """Put the thin Flower app there.

    Raises:
        SiteFileError: something is there already.
    """
    if folder.exists():
        raise SiteFileError(f"{folder} exists already; name a new folder")
    with as_file(files("simulations.flower") / "template") as template:
        shutil.copytree(template, folder)


def _deal(dataset: Dataset, n_sites: int) -> dict[PartyId, ClientRows]:
    order = np.random.default_rng(0).permutation(len(dataset.x_train))
    return {
        party: ClientRows(dataset.x_train[places], dataset.y_train[places])
        for party, places in enumerate(np.array_split(order, n_sites), start=1)
    }


def _write_tls(folder: Path, address: str) -> None:
    certificates = LoopbackCertificates.generate()
    tls, home = folder / "tls", folder / "operator-home"
    tls.mkdir()
    home.mkdir()
    (tls / "ca.crt").write_bytes(certificates.authority)
    (tls / "server.crt").write_bytes(certificates.certificate)
    _write_private(tls / "server.key", certificates.key)
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
    helper: tuple[PartyId, KeyPair] | None,
    roster: Roster,
    rows: ClientRows,
    party: PartyId,
) -> None:
    folder.mkdir(mode=0o700)
    write_secret(folder / "identity.key", identity.secret)
    text = SITE.format(party=party, n_sites=len(roster.clients))
    if helper is not None:
        write_secret(folder / "helper.key", helper[1].secret)
        text += HELPER.format(party=helper[0])
    (folder / "site.toml").write_text(text)
    (folder / "roster.toml").write_text(roster.to_toml())
    np.savez(folder / "rows.npz", x_train=rows.features, y_train=rows.targets)
    secret, public = node_key_pair()
    _write_private(folder / "node", secret)
    (folder / "node.pub").write_bytes(public)


def _write_private(path: Path, content: bytes) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
