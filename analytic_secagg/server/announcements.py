"""Before a sum: what its helpers announce, which the proposal then brings to everybody.

The key holder says its signed public context, for each sum a fresh one; a committee's helpers the signed keys of their
epochs. These are kept by the server, so that a helper that is away does not keep the others from a sum that bears it.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from analytic_secagg.errors import OutputError
from analytic_secagg.modes import Mode, find_mode
from analytic_secagg.server.exchange import Deadlines, NodeId, SessionExchange
from analytic_secagg.server.server_file import ServerFile
from analytic_secagg.session_config import SessionConfig
from analytic_secagg.site.errors import UnreachableError
from analytic_secagg.site.messages import CONTEXT, write_proposal
from analytic_secagg.site.proposal import TrainingProposal
from analytic_secagg.site.session import Session, config_of
from secagg import FileStore, PartyId
from secagg.committee import SealingKey
from secagg.errors import ConfigurationError

TITLE = "ANNOUNCEMENT"


def with_announcements(
    question: TrainingProposal, server: ServerFile, exchange: SessionExchange, deadlines: Deadlines
) -> TrainingProposal:
    """Return the proposal with what helpers announce, where a mode's helpers do.

    All nodes are asked: only an answer tells where a helper is.

    Args:
        question: the proposal without announcements.
        server: its roster names the helpers and their identities; sealing keys of epochs are kept in its folder.
        exchange: the way to the nodes.
        deadlines: the exchange is over once enough helpers have answered and the quorum is reached.

    Raises:
        UnreachableError: a helper did not answer, and nothing that it announced before serves.
    """
    mode, roster = find_mode(question.mode), server.roster
    if mode.announce is None:
        return question
    config = config_of(question, roster)
    assert mode.helper is not None, "who announces something has a role"
    known, answered, away = _Known(mode, config, server.output / "announced"), set[PartyId](), list[int]()

    def take(node: NodeId, party: PartyId, announced: bytes) -> None:
        try:
            if mode.helper is not None and mode.helper.has_epochs:
                known.learn(party, announced)
            else:
                Session.of(question.with_announced({party: announced}), roster)
                known.said[party] = announced
        except ConfigurationError as error:
            exchange.refuse(node, str(error))
            return
        answered.add(party)
        exchange.note(node, party, TITLE, announced)

    content = write_proposal(question)

    def is_complete() -> bool:
        if known.missing:
            return False
        if not away:
            session = Session.of(question.with_announced(known.said), roster)
            away.append(session.protocol.guarantee.helper_dropout_tolerance)
        return len(answered) >= len(config.helper_keys) - away[0]

    complete = replace(deadlines, complete=is_complete)
    exchange.ask(TITLE, CONTEXT, dict.fromkeys(exchange.everybody(), content), take, complete)
    if missing := known.missing:
        raise UnreachableError(
            f"{mode.helper.name} {', '.join(map(str, missing))} did not answer; nothing can be sealed to it, and "
            "no client was asked. Start its node, or read in its log why it declined (the reason is above), and "
            "run again"
        )
    return question.with_announced(known.said)


class _Known:
    """Announcements of helpers; of epochs the newest, also from earlier sums.

    Args:
        mode: of the sum.
        config: its public parameters.
        folder: where sealing keys are kept.
    """

    def __init__(self, mode: Mode, config: SessionConfig, folder: Path) -> None:
        self._identities: Mapping[PartyId, bytes] = config.helper_keys
        self._folder = folder
        self.said: dict[PartyId, bytes] = {}
        if mode.helper is not None and mode.helper.has_epochs:
            for party in self._identities:
                with suppress(ConfigurationError):  # of another identity, which the roster listed before
                    if (stored := self._store(party).load()) is not None:
                        self._check(party, stored)
                        self.said[party] = stored

    @property
    def missing(self) -> list[PartyId]:
        """Helpers that have not announced anything."""
        return sorted(self._identities.keys() - self.said.keys())

    def learn(self, party: PartyId, announced: bytes) -> None:
        """Keep a helper's sealing key, unless a newer one is known: anybody can repeat an old one.

        Raises:
            ConfigurationError: its helper did not sign it, or there is no such helper.
            OutputError: it cannot be kept.
        """
        self._check(party, announced)
        newest = SealingKey.from_bytes(self.said.get(party, announced)).epoch
        if newest > SealingKey.from_bytes(announced).epoch:
            raise ConfigurationError(f"a newer sealing key of helper {party} is known")
        self.said[party] = announced
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._store(party).save(announced)
        except OSError as error:
            raise OutputError(
                f"a helper's key must be kept in {self._folder} and cannot be: {error.strerror}; free space and run "
                "again. No client was asked"
            ) from error

    def _check(self, party: PartyId, announced: bytes) -> None:
        if party not in self._identities:
            raise ConfigurationError(f"party {party} is no helper of this sum")
        SealingKey.from_bytes(announced).check(self._identities[party])

    def _store(self, party: PartyId) -> FileStore:
        return FileStore(self._folder / f"sealing-key-{party}")
