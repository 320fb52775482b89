"""The server's side of one secure mean: set-up, vectors as they come, unmasking; no engine in it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

from analytic_secagg.errors import UsageError
from analytic_secagg.mean.client import BEGIN, GO_ON, HELP, KEY
from analytic_secagg.mean.plan import MeanPlan
from analytic_secagg.mean.terms import MeanTerms, Model, digest_of, floats_of
from analytic_secagg.modes import MODES
from analytic_secagg.server.server_file import ServerFile
from analytic_secagg.site.errors import UnreachableError
from secagg import MeanResult, PartyId, PartySecrets, RemoteProtocolError, ServerSession, new_session_id

LOG = logging.getLogger("analytic_secagg.mean")

Ask = Callable[[str, bytes, Mapping[PartyId, bytes]], Iterable[tuple[PartyId, bytes]]]
"""An engine's exchange: sends stage, plan and each party's content, and yields answers as they come until all are there
or its deadline. Parties of no answer are left out."""


class MeanRound:
    """One round.

    Args:
        terms: as the clients state them.
        model: all arrays of the model to train.
        options: digest of all else that clients train with.
        members: a lasting name of each client (``MeanPlan``); with ``server`` their numbers in the roster.
        exponents: carried scales; empty in a first round.
        server: the server's file, with roster and signing key; None where clients trust it not to lie.
    """

    def __init__(
        self,
        terms: MeanTerms,
        model: Model,
        options: bytes,
        *,
        members: Sequence[str],
        exponents: tuple[int, ...] = (),
        server: ServerFile | None = None,
    ) -> None:
        self._terms, self._server = terms, server
        self._plan = MeanPlan(
            session=new_session_id().hex(),
            members=tuple(members),
            shapes=tuple((name, array.shape) for name, array in floats_of(model).items()),
            model=digest_of(model).hex(),
            options=options.hex(),
            exponents=exponents,
        )
        self.spec = self._plan.spec(terms)
        self.parties = self._plan.parties if server is None else tuple(int(name) for name in members)
        self._session: ServerSession | None = None

    @property
    def plan(self) -> bytes:
        """Encoding of the round's plan."""
        return self._plan.to_bytes()

    @property
    def helpers(self) -> tuple[PartyId, ...]:
        """Numbers of a committee's helpers: those of the roster, or the first that no client has."""
        helper = MODES[self._terms.mode].helper
        if helper is None:
            return ()
        if self._server is not None:
            return tuple(self._server.roster.listed(helper))
        return tuple(range(len(self.parties) + 1, len(self.parties) + 1 + self._terms.helpers))

    def set_up(self, ask: Ask) -> dict[PartyId, bytes]:
        """Exchange all that precedes the vectors; what each client needs beside the model, by client.

        Raises:
            UnreachableError: a helper is missing.
            SecureSumError: too few clients, or terms that make no sum.
        """
        if helpers := self.helpers:
            keys = dict(ask(KEY, b"", dict.fromkeys(helpers, b"")))
            if missing := sorted({*helpers} - keys.keys()):
                raise UnreachableError(f"a committee needs a key of each helper, and none came of {missing[:10]}")
            self._plan = self._plan.with_helpers(keys)
        _, sum_ = self._plan.sum(self._terms, None if self._server is None else self._server.roster)
        secrets = PartySecrets(identity=None if self._server is None else self._server.identity)
        self._session = sum_.server(secrets=secrets)
        if helpers:
            return dict.fromkeys(self.parties, b"")
        self._exchange(ask, BEGIN, dict.fromkeys(self.parties, b""))
        self._exchange(ask, GO_ON, self._session.close_round())
        return dict(self._session.close_round())

    def take(self, party: PartyId, answer: bytes) -> None:
        """Add one client's vector, or process another answer. One that is refused counts as if it had not come."""
        try:
            self._running.receive(party, answer)
        except RemoteProtocolError as error:
            LOG.warning("secure mean: an answer was refused: %s", type(error).__name__)

    def finish(self, ask: Ask) -> MeanResult:
        """Unmask the sum of the vectors that came.

        Raises:
            SecureSumError: too few of them, or a total that no clients can have.
        """
        stage = HELP if self.helpers else GO_ON
        while requests := self._running.close_round():
            self._exchange(ask, stage, requests)
        assert self._running.result is not None
        return self.spec.mean(self._running.result)

    def _exchange(self, ask: Ask, stage: str, contents: Mapping[PartyId, bytes]) -> None:
        for party, answer in ask(stage, self.plan, contents):
            self.take(party, answer)

    @property
    def _running(self) -> ServerSession:
        if self._session is None:
            raise UsageError("set_up comes first")
        return self._session
