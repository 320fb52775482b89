"""One client of a committee's sum, by a malicious server that has helpers answer for different survivors."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress

import numpy as np

from analytic_secagg.modes import MODES, Mode, fresh_identity
from secagg import InOneProcess, PartyId
from secagg.committee.messages import (
    SET_LABEL,
    CommitteeInput,
    MaskSum,
    SeedDelivery,
    SetCertificate,
    set_hash,
)
from secagg.committee.protocol import CommitteeSum
from secagg.config import SERVER
from secagg.entropy import Entropy
from secagg.errors import SecureSumError
from secagg.layout import IntVector
from secagg.primitives.identity import SIGNATURE_BYTES
from secagg.ring import RingVector
from secagg.sessions import ClientSession
from secagg.sums import CoalitionView
from secagg.wire import MessageType, Reader, payload_of, seal_frame, write_parties
from simulations.audit.attack import PROBE, VICTIM, Attack, Expectation
from simulations.audit.evaluate import Score
from simulations.audit.view import read_integers
from simulations.audit.workbench import Bench

COHORT = 5

NEVER = 1e-12
"""How often thousands of numbers are right by accident, at most."""

Sets = Mapping[PartyId, frozenset[PartyId]]
"""Which survivors each helper is told."""


class SurvivorSets(Attack):
    """A malicious server, with as many helpers as may collude, sends the others different survivors."""

    name = "survivor_sets"
    title = "One client, by a server that sends helpers different survivors"
    explanation = (
        "The server colludes with as many helpers as the committee is stated to tolerate. It sends the others "
        "different sets of survivors, one set after another, or the target alone, with every signature that it can "
        "get, and subtracts the sums of masks that come back. Success: the target's vector, every number exact. "
        "Chance: none."
    )

    def expected(self, mode: Mode | None) -> Expectation | None:
        """It applies where several helpers share the masks, and must fail."""
        guarantee = None if mode is None else mode.guarantee(PROBE)
        return None if guarantee is None or guarantee.helper_reconstruction_threshold is None else Expectation.HIDDEN

    def play(self, bench: Bench, mode: Mode | None, trials: int) -> Score:
        """Attack a cohort for each trial."""
        assert mode is not None
        return _score(bench, mode, trials, forgetful=False)

    def control(self, bench: Bench, trials: int) -> Score | None:
        """Attack helpers that forget what they signed, as helpers restored from a backup would."""
        return _score(bench, MODES["committee"].with_options(helpers=4, corrupt=1), 2, forgetful=True)


def _score(bench: Bench, mode: Mode, trials: int, *, forgetful: bool) -> Score:
    """Return one trial for each of some cohorts."""
    hits = 0
    for _ in range(trials):
        vectors = bench.vectors(bench.cohort(COHORT))
        parties = bench.parties(mode, tuple(vectors), identity_of=fresh_identity)
        hits += _is_opened(parties, vectors, bench.entropy, forgetful=forgetful)
    return Score(hits=hits, trials=trials, chance=NEVER)


def _is_opened(
    parties: InOneProcess, vectors: Mapping[PartyId, IntVector], entropy: Entropy, *, forgetful: bool
) -> bool:
    """Return whether a plan, each on sessions of its own, gives the target's vector."""
    everybody = frozenset(vectors)
    without, alone = everybody - {VICTIM}, frozenset({VICTIM})
    uploads = {party: parties.client(party, vector, entropy=entropy).start() for party, vector in vectors.items()}
    server = _LyingServer(parties, {party: said for party, said in uploads.items() if said is not None}, forgetful)
    first, *others = server.honest
    plans: list[list[Sets]] = [
        [{first: everybody, **dict.fromkeys(others, without)}],
        [dict.fromkeys(server.honest, everybody), dict.fromkeys(server.honest, without)],
        [dict.fromkeys(server.honest, alone)],
    ]
    guesses = (server.guess(plan) for plan in plans)
    return any(np.array_equal(guess, vectors[VICTIM]) for guess in guesses if guess is not None)


class _LyingServer:
    """Plays the server, and helpers that collude, to real sessions of all others, which may forget what they signed."""

    def __init__(self, parties: InOneProcess, uploads: Mapping[PartyId, bytes], forgetful: bool) -> None:
        assert isinstance(parties.protocol, CommitteeSum)
        self._forgetful = forgetful
        self._parties, self._config, self._uploads = parties, parties.protocol, uploads
        helpers, corrupt = self._config.helpers, self._config.corrupt
        self.honest, self._corrupt = helpers[: len(helpers) - corrupt], helpers[len(helpers) - corrupt :]

    def guess(self, plan: list[Sets]) -> IntVector | None:
        """The target's vector less all that the answers to a plan show of its masks; None without its upload."""
        config, sums = self._config, dict[tuple[int, frozenset[PartyId]], RingVector]()
        sessions = {helper: self._parties.helper(helper) for helper in self.honest}
        for told in plan:
            if self._forgetful:
                sessions = {helper: self._parties.helper(helper) for helper in self.honest}
            for place, survivors, answer in self._answers(sessions, told):
                sums[place, survivors] = answer
        colluders = {party: self._parties.of_party(party) for party in self._corrupt}
        knowledge = CoalitionView(messages=tuple(self._uploads.values()), tapes={}, secrets=colluders)
        opened = config.reconstruct_upload(knowledge, VICTIM)
        known = {place for helper in self._corrupt for place in config.seed_sharing.sets_of(helper)}
        if opened is None:
            return None
        for place in set(range(config.seed_sharing.n_seeds)) - known:
            for mask in _masks_of_victim(sums, place):
                opened.subtract(mask)
                break
        return read_integers(config.layout, opened.to_bytes())

    def _answers(
        self, sessions: Mapping[PartyId, ClientSession], told: Sets
    ) -> Iterator[tuple[int, frozenset[PartyId], RingVector]]:
        """The sums that helpers give who are told these survivors."""
        signatures = {party: self._signed(sessions[party], party, survivors) for party, survivors in told.items()}
        for party, survivors in told.items():
            same = {peer: said for peer, said in signatures.items() if said and told[peer] == survivors}
            same |= {peer: self._signed_by(peer, survivors) for peer in self._corrupt}
            certificate = SetCertificate(survivors=tuple(sorted(survivors)), signatures=dict(sorted(same.items())))
            held = self._config.seed_sharing.sets_of(party)
            with suppress(SecureSumError):
                self._ask(sessions[party], party, MessageType.SET_CERTIFICATE, certificate.to_payload())
                request = write_parties(held)
                answer = self._ask(sessions[party], party, MessageType.MASK_REQUEST, request)
                for place, said in MaskSum.read(Reader(memoryview(answer), peer=party), self._config).sums.items():
                    yield place, survivors, RingVector.from_bytes(self._config.layout, said).copy()

    def _signed(self, session: ClientSession, helper: PartyId, survivors: Iterable[PartyId]) -> bytes:
        """A helper's signature on these survivors; empty where it refuses."""
        entries = {client: self._input(client).entry(helper) for client in self._uploads}
        with suppress(SecureSumError):
            self._ask(session, helper, MessageType.SEED_DELIVERY, SeedDelivery(entries=entries).to_payload())
        with suppress(SecureSumError):
            said = write_parties(tuple(sorted(survivors)))
            answer = self._ask(session, helper, MessageType.SURVIVOR_SET, said)
            return Reader(memoryview(answer), peer=helper).only(SIGNATURE_BYTES)
        return b""

    def _signed_by(self, colluder: PartyId, survivors: Iterable[PartyId]) -> bytes:
        digest, identity = self._config.digest, self._parties.of_party(colluder).identity
        assert identity is not None
        said = {
            client: hashlib.sha256(self._input(client).entry(colluder).statement(digest, client)).digest()
            for client in survivors
        }
        return identity.sign(SET_LABEL, set_hash(digest, said))

    def _input(self, client: PartyId) -> CommitteeInput:
        return CommitteeInput.read(Reader(memoryview(payload_of(self._uploads[client])), peer=client), self._config)

    def _ask(self, session: ClientSession, helper: PartyId, type_: MessageType, payload: bytes) -> bytes:
        message = seal_frame(
            type_,
            payload,
            digest=self._config.digest_of(type_),
            sender=SERVER,
            recipient=helper,
            identity=self._parties.of_party(SERVER).identity,
        )
        answer = session.receive(message)
        assert answer is not None, "a helper answers whatever it does not refuse"
        return bytes(payload_of(answer))


def _masks_of_victim(sums: Mapping[tuple[int, frozenset[PartyId]], RingVector], place: int) -> Iterator[RingVector]:
    """The target's mask of a set, from sums over survivors that differ by the target alone."""
    nobody = {(place, frozenset[PartyId]()): None}
    for at, survivors in sums:
        others = survivors - {VICTIM}
        if at == place and VICTIM in survivors and (place, others) in {**sums, **nobody}:
            mask = sums[place, survivors].copy()
            if others:
                mask.subtract(sums[place, others])
            yield mask


ATTACK = SurvivorSets()
