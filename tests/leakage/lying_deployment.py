"""A server that lies to real sites: about what is computed, to whom it speaks in whose name, and when it asks.

``lying_server.py`` searches the messages of one protocol. Here each party is a whole site with its file, its journal
and its rows, and what the server learns is what a total says of *rows*, who answers, and who signs. All that it does is
a sequence of choices again, of which 0 is the honest one. After each play ``Play.leaks`` says what it got that it must
not get; every finding is held against the rows and the totals that it is about.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
from leakage.lying_server import Choose
from support.lying_server import LyingServer
from support.rehearsed import CLIENTS, announced, proposal, site

from analytic import AFL, ClientRows, ColumnMap, RowFormat
from analytic.statistics import FloatMatrix, IntMatrix
from analytic_secagg.datasets import Dataset
from analytic_secagg.server.run_settings import RunSettings, template_settings
from analytic_secagg.site.errors import DeploymentError, Refusal
from analytic_secagg.site.key_files import read_secret
from analytic_secagg.site.message_handler import handle_message
from analytic_secagg.site.messages import (
    CONTEXT,
    END,
    INVITE,
    STEP,
    signed,
    write_end,
    write_messages,
    write_proposal,
)
from analytic_secagg.site.proposal import TrainingProposal
from analytic_secagg.site.roster import Roster
from analytic_secagg.site.session import Session
from analytic_secagg.site.site import Messages, Site
from analytic_secagg.site.site_file import SiteFile
from analytic_secagg.trial import FIRST_HELPER, Trial
from secagg import IdentityKey, PartyId, SumProtocol
from secagg.config import SERVER
from secagg.errors import SecureSumError
from secagg.receipted_sum import CountersignRequest
from secagg.receipts import upload_tree
from secagg.wire import MessageType, message_type, seal_frame

VICTIM = 3
"""The site whose rows differ in two worlds."""

SETTINGS = {"n-features": 3, "n-classes": 2, "feature-format": "UQ3.5", "max-rows": 100, "corruption": 0.0}
AGREED: Any = RunSettings.of(template_settings() | SETTINGS).build_learner(len(CLIENTS))
SIZES: dict[str, Any] = {"n_features": 3, "n_targets": 2, "max_clients": len(CLIENTS)}

COMPUTED: dict[str, AFL] = {
    "what was agreed on": AGREED,
    "a column in which one row is above a unit": AFL(
        **SIZES, max_rows=100, feature_format=RowFormat.parse("UQ0.8"), columns=ColumnMap(exponents=(10, 3, 3))
    ),
    "a column that says who is above a bound": AFL(
        **SIZES,
        max_rows=100,
        feature_format=RowFormat.parse("UQ0.8"),
        columns=ColumnMap(exponents=(0, 3, 3), centres=(6.0, 0.0, 0.0), factors=(2.0**20, 1.0, 1.0)),
        clip=True,
    ),
    "a format that large values do not fit": replace(AGREED, feature_format=RowFormat.parse("UQ2.6")),
    "fewer rows than a site has": replace(AGREED, max_rows=7 * len(CLIENTS)),  # of which each client may have a fifth
}
"""What a server may propose; the first is what owners pinned."""

MODES = {
    "masked": {"mode": "masked", "dropout": 0.4, "receipts": "clients"},
    "committee": {"mode": "committee", "helpers": (FIRST_HELPER, FIRST_HELPER + 1), "min_survivors": 3},
}


def world(folder: Path, *, is_other: bool = False, has_lone_class: bool = False) -> Trial:
    """Five sites with a few rows each, whose owners agree on ``AGREED`` and on nothing else.

    Args:
        folder: where they are made.
        is_other: whether the victim's rows are the other ones: one row less, and no large value.
        has_lone_class: whether one row alone has the second class.
    """
    rng = np.random.default_rng(3)
    rows = {party: rng.integers(16, 126, (6 + 2 * (party == VICTIM), 3)) / 32.0 for party in CLIENTS}
    rows[VICTIM][0] = (2.5, 3.0, 1.0) if is_other else (7.0, 3.0, 1.0)
    if is_other:
        rows[VICTIM] = rows[VICTIM][:-1]
    whole = np.vstack(list(rows.values()))
    labels = np.arange(len(whole)) % 2
    dataset = Dataset(name="few", x_train=whole, y_train=labels, x_test=whole, y_test=labels)
    trial = Trial.create(folder, dataset, n_sites=len(CLIENTS), n_helpers=2, settings=SETTINGS)
    given = {}
    for party, features in rows.items():
        labels = np.arange(len(features)) % 2 * (not has_lone_class)
        labels[0] |= has_lone_class and party == VICTIM
        given[party] = ClientRows(features, labels.astype(np.int64))
        trial.give_rows(party, given[party])
    return replace(trial, rows=given)


@dataclass(frozen=True)
class Released:
    """A total that the server has, and of what it is."""

    name: str
    learner: AFL
    survivors: tuple[PartyId, ...]
    gram: IntMatrix
    cross: IntMatrix

    def parts(self, rows: Mapping[PartyId, ClientRows]) -> tuple[FloatMatrix, FloatMatrix]:
        """What each person's row adds to the Gram and to the cross-correlation; nothing where its site is not in it."""
        grams, crosses = [], []
        for party, own in rows.items():
            features, targets = self.learner.mapped(own)
            fit = party in self.survivors
            units = self.learner.spec.feature_format.quantise(features, clip=True) * fit
            grams.append(units[:, :, None] * units[:, None, :])
            crosses.append(units[:, :, None] * np.eye(self.learner.n_targets)[targets][:, None, :])
        return np.concatenate(grams), np.concatenate(crosses)


@dataclass
class Liar(LyingServer):
    """A lying server that notes who answered what, and may have totals countersigned before their time."""

    early: int = 0
    seen: list[tuple[int, str]] = field(default_factory=list)
    protocol: SumProtocol | None = None
    uploads: dict[PartyId, bytes] = field(default_factory=dict)
    asked: set[PartyId] = field(default_factory=set)
    unagreed: list[PartyId] = field(default_factory=list)

    def _ask(self, number: int, ask: Callable[[Site], Messages]) -> Messages:
        if self.early and number in self.uploads.keys() - self.asked:  # its next message, so all have sent theirs
            self.asked.add(number)
            self._countersign_early(number)
        said = LyingServer._ask(self, number, ask)
        self.seen.append((number, "silent" if number in self.refused else "answers"))
        for party, message in said.items():
            if party in CLIENTS and message and message_type(message) is MessageType.MASKED_INPUT:
                self.uploads[party] = hashlib.sha256(message).digest()
        return said

    def _countersign_early(self, number: PartyId) -> None:
        """Have a client sign a total that never was, of all or without the last one, before it agreed to survivors."""
        protocol, dropped = self.protocol, CLIENTS[-1:] if self.early > 1 else ()
        kept = {party: upload for party, upload in self.uploads.items() if party not in dropped}
        if number not in kept:
            return
        assert protocol is not None, "only where clients countersign"
        missing = tuple(party for party in CLIENTS if party not in kept)
        root, paths = upload_tree(kept)
        asked = CountersignRequest(dropouts=missing, uploads=root, total=bytes(32), path=paths[number])
        message = seal_frame(
            MessageType.COUNTERSIGN_REQUEST,
            asked.to_payload(),
            digest=protocol.digest,
            sender=SERVER,
            recipient=number,
            identity=identity_of(self.trial),
        )
        session = protocol.protocol.session_id  # type: ignore[attr-defined]
        if not LyingServer._ask(self, number, lambda own: own.answer(session, {number: message})):
            return
        looked = site(self.trial, number).look()
        if looked is None or not any(one.total == protocol.digest for one in looked[0]):
            self.unagreed.append(number)


def identity_of(trial: Trial) -> IdentityKey:
    """The server's signing key."""
    return IdentityKey(read_secret(trial.folder / "server" / "identity.key"))


class Play:
    """One play against the sites of a fresh copy of a world.

    Args:
        trial: the world; it stays as it is.
        folder: where the copy goes, which is gone afterwards.
        mode: one of ``MODES``.
        choose: the server's choices.
    """

    def __init__(self, trial: Trial, folder: Path, mode: str, choose: Choose) -> None:
        shutil.copytree(trial.folder, folder)
        self._trial, self._mode, self._choose = replace(trial, folder=folder), mode, choose
        self.seen: list[tuple[int, str]] = []
        self.released: list[Released] = []
        self._leaks: set[str] = set()
        try:
            self._play()
        finally:
            shutil.rmtree(folder)

    def _play(self) -> None:
        """A sum, in whose name and of what is chosen; and perhaps another one, after sites forgot the first."""
        self._sum(self._pick(), in_whose_name=self._choose(3))
        if following := self._choose(3):
            for party in CLIENTS if following > 1 else ():
                shutil.rmtree(self._trial.site(party) / "state", ignore_errors=True)
            self._sum(self._pick())

    def _pick(self) -> str:
        return list(COMPUTED)[self._choose(len(COMPUTED))]

    def _sum(self, name: str, *, in_whose_name: int = 0) -> None:
        learner = COMPUTED[name]
        proposed = proposal(learner, **{"dropout": 0.0, **MODES[self._mode]})
        if in_whose_name:
            self._invite_without_the_server(proposed, is_replayed=in_whose_name > 1)
            return
        liar = Liar(self._trial, early=self._choose(3) if self._mode == "masked" else 0)
        roster = Roster.read(self._trial.folder / "server" / "roster.toml")
        if self._mode == "masked":
            liar.protocol = Session.of(proposed, roster).protocol
        try:
            result = liar.total(proposed, lost=(VICTIM,) if self._choose(2) else ())
        except (SecureSumError, DeploymentError):  # no total; or a helper's site does not start
            result = None
        self.seen += liar.seen
        if liar.unagreed:
            self._leaks.add("a client countersigned what it had not agreed to")
        if result is not None:
            total = learner.spec.from_vector(result.total)
            self.released.append(Released(name, learner, result.survivors, total.gram, total.cross))

    def _invite_without_the_server(self, proposed: TrainingProposal, *, is_replayed: bool) -> None:
        """Speak to sites as somebody on the network does, with a key of one's own or a signature on something else."""
        proposed = announced(self._trial, proposed) if self._mode == "committee" else proposed
        contents = {
            INVITE: write_proposal(proposed),
            STEP: write_messages({}, session=proposed.session),
            END: write_end(proposed.session),
        }
        for party, (kind, content) in product(CLIENTS, contents.items()):
            identity = identity_of(self._trial) if is_replayed else IdentityKey.generate()
            message = signed(identity, CONTEXT if is_replayed else kind, content)
            path = self._trial.site(party) / "site.toml"
            said = handle_message(partial(SiteFile.read, path), kind, partial(bytes, message))
            self.seen.append((party, "silent" if isinstance(said, Refusal) else "answers"))
            if not isinstance(said, Refusal) or site(self._trial, party).count_totals() != (0, 0):
                self._leaks.add("a site answers what the server did not sign")

    def leaks(self) -> set[str]:
        """What the server got that it must not get."""
        return self._leaks | set(self._read())

    def _read(self) -> Iterator[str]:
        """Lines of totals, and of differences of two totals, to which one row adds alone, or one site's rows."""
        owners = np.concatenate([np.full(len(own), party) for party, own in self._trial.rows.items()])
        known = []
        for one in self.released:
            grams, crosses = one.parts(self._trial.rows)
            assert (grams.sum(axis=0) == one.gram).all(), "the total is what the rows say"
            assert (crosses.sum(axis=0) == one.cross).all(), "the total is what the rows say"
            known.append((grams, crosses))
        apart = [*known, *((a[0] - b[0], a[1] - b[1]) for a, b in combinations(known, 2))]
        for place, (grams, crosses) in enumerate(apart):
            which = "a total" if place < len(known) else "a difference of totals"
            for parts, line in ((grams, "a column's line"), (crosses.transpose(0, 2, 1), "a class")):
                adds = (parts != 0).any(axis=2)  # rows, lines
                for count, at in zip(adds.sum(axis=0), adds.T, strict=True):
                    if count == 1:
                        yield f"{line} of {which} is one row"
                    elif count and len(set(owners[at])) == 1:
                        yield f"{line} of {which} is one site's"
