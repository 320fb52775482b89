"""A mode with a helper role, defined in this file alone, through everything that knows modes.

No other file names it: what works here works for a mode that somebody brings along.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from rehearsed import CLIENTS as SITES
from rehearsed import edit, invitation, is_exact, run_config, site
from simulations.audit.attacks.coalitions import by_coalition
from support.parties import registered

from analytic.afl import AFL
from analytic.learner import ClientRows, fit_pooled
from analytic.row_format import RowFormat
from federation.datasets import bundled
from federation.flower.rehearsal import rehearse
from federation.flower.trial import Trial
from federation.in_process import federate
from federation.modes import HelperRole, KeyKind, Mode
from federation.site.errors import DeclinedError
from federation.site.key_files import write_secret
from federation.site.roster import Roster
from federation.sum_setup import SumSetup
from secagg import Guarantee, Layout, PartyId, PartySecrets, SumResult, os_entropy, run_in_memory
from secagg.config import SERVER, SumConfig, check_min_survivors, harmless_colluders
from secagg.contribution import check_now, resolve
from secagg.costs import COUNT_BYTES, PARTY_BYTES, PartyCost
from secagg.entropy import Entropy
from secagg.errors import ConfigurationError, HelperMissingError, LocalProtocolError, PolicyError, RemoteProtocolError
from secagg.policy import ClientPolicy
from secagg.primitives.agreement import PUBLIC_KEY_BYTES, KeyPair
from secagg.primitives.mask_stream import add_masks
from secagg.ring import RingVector
from secagg.rounds import Round, ServerRounds
from secagg.sessions import ClientSession, Contribution, ServerSession
from secagg.snapshots import (
    CLIENT,
    HELPER,
    hash_snapshot,
    opened_snapshot,
    read_round,
    seal_snapshot,
    server_snapshot,
    write_round,
)
from secagg.sums import CLIENT_ROLE, NO_SECRETS, Knowledge, Upload
from secagg.wire import MessageType, Reader, open_frame, seal_frame, write_entries
from simulations.audit.attack import Expectation
from simulations.audit.catalogue import ATTACKS
from simulations.audit.population import Population
from simulations.audit.workbench import Bench

VEILER_ROLE = "veiler"


@dataclass(frozen=True, slots=True, kw_only=True)
class VeiledSum(SumConfig):
    """Each client hides its vector under one mask that it shares with the veiler, who takes the masks' sum off."""

    veiler: PartyId
    veiler_key: bytes
    min_survivors: int

    def _check(self) -> None:
        check_min_survivors(self.min_survivors, self.clients)

    def _own_parameters(self) -> tuple[bytes, ...]:
        return self.veiler.to_bytes(4, "big"), self.veiler_key, self.min_survivors.to_bytes(4, "big")

    @property
    def name(self) -> str:
        return "veiled"

    @property
    def survivors_needed(self) -> int:
        return self.min_survivors

    @property
    def helpers(self) -> tuple[PartyId, ...]:
        return (self.veiler,)

    @property
    def public_keys(self) -> Mapping[str, Mapping[PartyId, bytes]]:
        return {VEILER_ROLE: {self.veiler: self.veiler_key}}

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee(
            survivors_needed=self.min_survivors,
            harmless_clients=harmless_colluders(self.min_survivors),
            opening_clients=0,
            opening_helpers=self.helpers,
            upload=Upload.UNIFORM,
        )

    @property
    def costs(self) -> Mapping[str, PartyCost]:
        vector, n = self.layout.wire_bytes, len(self.clients)
        asked = COUNT_BYTES + n * (PARTY_BYTES + PUBLIC_KEY_BYTES)
        return {
            CLIENT_ROLE: PartyCost.of_payloads([PUBLIC_KEY_BYTES + vector], [], vector_bytes=vector),
            VEILER_ROLE: PartyCost.of_payloads([vector], [asked], vector_bytes=vector),
        }

    def explain(self) -> str:
        return f"veiled sum over {len(self.clients)} clients; the veiler and the server must not collude"

    def client(
        self,
        party: PartyId,
        contribution: Contribution,
        *,
        secrets: PartySecrets = NO_SECRETS,
        entropy: Entropy = os_entropy,
    ) -> ClientSession:
        self.signer(CLIENT_ROLE, party, secrets)
        return VeiledClient(self, party, contribution, entropy)

    def helper(
        self, party: PartyId, *, secrets: PartySecrets = NO_SECRETS, entropy: Entropy = os_entropy
    ) -> ClientSession:
        if party != self.veiler or secrets.agreement is None or secrets.agreement.public != self.veiler_key:
            raise ConfigurationError(f"the key of the veiler, party {self.veiler}, is needed")
        return Veiler(self, secrets.agreement)

    def server(self, *, secrets: PartySecrets = NO_SECRETS, entropy: Entropy = os_entropy) -> ServerSession:
        return VeiledServer(self)

    def mask(self, own: KeyPair, other: bytes) -> bytes:
        return own.agree(other, "veil", self.digest)

    def opened_by(self, knowledge: Knowledge, target: PartyId) -> RingVector | None:
        payload, vector = knowledge.upload(target), knowledge.upload_as_sent(target, self.layout)
        own = knowledge.secrets.get(self.veiler, NO_SECRETS).agreement
        if payload is not None and vector is not None and own is not None:
            add_masks(vector, [(self.mask(own, payload[:PUBLIC_KEY_BYTES]), -1)], self.digest)
        return vector

    def snapshot_client(self, session: ClientSession, key: bytes, *, entropy: Entropy = os_entropy) -> bytes:
        assert isinstance(session, VeiledClient)
        return seal_snapshot(CLIENT, self, session.party, bytes([session.has_spoken]), key, entropy=entropy)

    def restore_client(
        self,
        party: PartyId,
        contribution: Contribution,
        snapshot: bytes,
        key: bytes,
        *,
        secrets: PartySecrets = NO_SECRETS,
        entropy: Entropy = os_entropy,
    ) -> ClientSession:
        session = VeiledClient(self, party, contribution, entropy)
        with opened_snapshot(CLIENT, self, party, snapshot, key) as reader:
            session.has_spoken = reader.take(1) != b"\0"
        return session

    def snapshot_helper(self, session: ClientSession, key: bytes, *, entropy: Entropy = os_entropy) -> bytes:
        assert isinstance(session, Veiler)
        return seal_snapshot(HELPER, self, session.party, bytes([session.has_spoken]), key, entropy=entropy)

    def restore_helper(
        self, party: PartyId, snapshot: bytes, key: bytes, *, secrets: PartySecrets = NO_SECRETS
    ) -> ClientSession:
        session = self.helper(party, secrets=secrets)
        assert isinstance(session, Veiler)
        with opened_snapshot(HELPER, self, party, snapshot, key) as reader:
            session.has_spoken = reader.take(1) != b"\0"
        return session

    def snapshot_server(self, session: ServerSession) -> bytes:
        assert isinstance(session, VeiledServer)
        return hash_snapshot(self, write_round(session._round) + write_entries(session.keys) + session.sum.to_bytes())

    def restore_server(self, snapshot: bytes, *, secrets: PartySecrets = NO_SECRETS) -> ServerSession:
        session = VeiledServer(self)
        with server_snapshot(self, snapshot) as reader:
            session._round, session.keys = read_round(reader, lambda _: self.digest), reader.entries(PUBLIC_KEY_BYTES)
            session.sum = RingVector.from_bytes(self.layout, reader.take(self.layout.wire_bytes)).copy()
        return session


class VeiledClient:
    def __init__(self, config: VeiledSum, party: PartyId, contribution: Contribution, entropy: Entropy) -> None:
        config.index(party)
        check_now(config.layout, contribution)
        self.party, self.has_spoken = party, False
        self._config, self._contribution, self._entropy = config, contribution, entropy

    def start(self) -> bytes:
        if self.has_spoken:
            raise LocalProtocolError("one session sends one vector")
        config, own = self._config, KeyPair.generate(self._entropy)
        vector = RingVector.encode(config.layout, resolve(config.layout, self._contribution))
        add_masks(vector, [(config.mask(own, config.veiler_key), 1)], config.digest)
        self.has_spoken = True
        return said(config, MessageType.COMMITTEE_INPUT, own.public + vector.to_bytes(), self.party, SERVER)

    def receive(self, message: bytes) -> bytes | None:
        raise RemoteProtocolError("a veiled client is asked nothing", peer=SERVER)


class Veiler:
    def __init__(self, config: VeiledSum, keys: KeyPair) -> None:
        self.party, self.has_spoken = config.veiler, False
        self._config, self._keys = config, keys

    def start(self) -> None:
        return

    def receive(self, message: bytes) -> bytes:
        config = self._config
        frame = open_frame(message, digest=config.digest, sender=SERVER, recipient=self.party)
        if self.has_spoken:
            raise LocalProtocolError("the veiler answers once")
        keys = Reader(frame.payload, peer=SERVER).entries(PUBLIC_KEY_BYTES)
        if len(keys) < config.min_survivors or not keys.keys() <= set(config.clients):
            raise RemoteProtocolError("too few clients, or strangers", peer=SERVER)
        veil = RingVector.zeros(config.layout)
        add_masks(veil, [(config.mask(self._keys, public), 1) for public in keys.values()], config.digest)
        self.has_spoken = True
        return said(config, MessageType.MASK_SUM, veil.to_bytes(), self.party, SERVER)


class VeiledServer(ServerRounds):
    def __init__(self, config: VeiledSum) -> None:
        ServerRounds.__init__(self, Round(config.digest, MessageType.COMMITTEE_INPUT, config.clients))
        self._config, self.sum = config, RingVector.zeros(config.layout)
        self.keys: dict[PartyId, bytes] = {}

    def receive(self, sender: PartyId, message: bytes) -> None:
        with self._taking() as round_:
            payload = bytes(round_.open(sender, message).payload)
            if round_.answer is MessageType.MASK_SUM:
                self.sum.subtract(RingVector.from_bytes(self._config.layout, payload))
            else:
                self.sum.add(RingVector.from_bytes(self._config.layout, payload[PUBLIC_KEY_BYTES:]))
                self.keys[sender] = payload[:PUBLIC_KEY_BYTES]
            round_.accept(sender, message)

    def close_round(self) -> Mapping[PartyId, bytes]:
        config = self._config
        with self._closing() as round_:
            if round_.answer is MessageType.COMMITTEE_INPUT:
                self._round = Round(config.digest, MessageType.MASK_SUM, config.helpers)
                asked = write_entries(self.keys)
                return {config.veiler: said(config, MessageType.MASK_REQUEST, asked, SERVER, config.veiler)}
            if round_.waiting_for:
                raise HelperMissingError(missing=config.helpers)
            self._result = SumResult(total=self.sum.decode(), survivors=tuple(sorted(self.keys)))
            self._round = None
            return {}


def said(config: VeiledSum, type_: MessageType, payload: bytes, sender: PartyId, recipient: PartyId) -> bytes:
    return seal_frame(type_, payload, digest=config.digest, sender=sender, recipient=recipient)


def make(setup: SumSetup) -> VeiledSum:
    ((veiler, key),) = setup.helper_keys.items()
    return VeiledSum(**setup.common, veiler=veiler, veiler_key=key, min_survivors=setup.survivors)


ROLE = HelperRole(name="veiler", table="veilers", key=KeyKind.AGREEMENT, at_most=1)
VEILER: PartyId = 301
LAYOUT = Layout.of([("entries", 3, 1000)])
COHORT = (1, 2, 3, 4, 5)


@pytest.fixture
def mode() -> Iterator[Mode]:
    """The mode, known to everybody within the test."""
    with registered(Mode(name="veiled", make=make, helper=ROLE)) as mode:
        yield mode


def test_it_adds_up_in_one_process_and_costs_what_it_says(mode: Mode) -> None:
    parties = mode.in_one_process(layout=LAYOUT, clients=COHORT, session_id=bytes(16))
    vectors = {party: np.array([party, -party, 7]) for party in COHORT}
    run = run_in_memory(parties, vectors, dropouts={3: 0})
    assert run.result.survivors == (1, 2, 4, 5)
    assert run.result.total.tolist() == [12, -12, 28]
    whole = run_in_memory(mode.in_one_process(layout=LAYOUT, clients=COHORT, session_id=bytes(16)), vectors).traffic
    for role, party in ((CLIENT_ROLE, 1), (VEILER_ROLE, parties.helpers[0])):
        cost = parties.protocol.costs[role]
        assert (whole[party].bytes_up, whole[party].bytes_down) == (cost.bytes_up, cost.bytes_down)


def test_a_policy_judges_it_by_its_own_word(mode: Mode) -> None:
    protocol = mode.in_one_process(layout=LAYOUT, clients=COHORT, session_id=bytes(16)).protocol
    accepts = ClientPolicy(modes=frozenset({"veiled"}), helpers=protocol.public_keys[VEILER_ROLE])
    accepts.check(protocol)
    with pytest.raises(PolicyError, match="1 of the 1 veilers have another key"):
        replace(accepts, helpers={protocol.helpers[0]: bytes(32)}).check(protocol)
    with pytest.raises(PolicyError, match="that 3 colluding clients"):
        replace(accepts, min_corruption=0.6).check(protocol)
    with pytest.raises(PolicyError, match="in masked only"):
        ClientPolicy().check(protocol)


def test_a_learner_runs_over_it(mode: Mode) -> None:
    data = bundled("digits")
    learner = AFL(
        n_features=64, n_targets=10, feature_format=RowFormat.covering(data.x_train), max_rows=2000, max_clients=5
    )
    parts = np.array_split(np.arange(300), len(COHORT))
    rows = {
        party: ClientRows(data.x_train[part], data.y_train[part]) for party, part in zip(COHORT, parts, strict=True)
    }
    weights = learner.weights_bytes(federate(learner, rows, mode))
    assert weights == learner.weights_bytes(fit_pooled(learner, ClientRows.pool(list(rows.values()))))


def deployed(trial: Trial, *, modes: str = '"veiled"') -> None:
    """Give a trial a veiler: in every roster, and in the file of site 2."""
    keys = KeyPair.generate(os_entropy)
    for path in trial.folder.glob("*/roster.toml"):
        roster = Roster.read(path)
        path.write_text(
            roster.model_copy(update={"beside": {**roster.beside, ROLE.table: {VEILER: keys.public}}}).to_toml()
        )
    write_secret(trial.folder / "site-2" / "veiler.key", keys.secret)
    with (trial.folder / "site-2" / "site.toml").open("a") as file:
        file.write(f'\n[veiler]\nparty = {VEILER}\nkey = "veiler.key"\n')
    for party in SITES:
        edit(trial, party, ("modes = [", f"modes = [{modes}, "))


def test_a_rehearsal_whose_sites_know_nothing_but_their_files_is_exact(
    mode: Mode, trial: Trial, tmp_path: Path
) -> None:
    """Each delivery is a fresh process, and comes twice: sessions are stored, restored and repeat themselves."""
    deployed(trial)
    rehearse(trial.folder, run_config(tmp_path, mode="veiled"), deliveries=2)
    is_exact(trial, list(SITES))


def test_a_veiler_that_was_killed_answers_the_same_and_nothing_else(mode: Mode, trial: Trial) -> None:
    deployed(trial)
    proposed = invitation(mode="veiled", helpers=(VEILER,), min_survivors=3)
    joined = {party: message for number in SITES for party, message in site(trial, number).join(proposed).items()}
    server = proposed.agree(Roster.read(trial.folder / "server" / "roster.toml")).protocol.server()
    agreed = proposed.agree(Roster.read(trial.folder / "server" / "roster.toml"))
    for party in agreed.protocol.clients:
        server.receive(party, joined[party][64:])  # the client's own signature stands before it
    (request,) = server.close_round().values()
    answer = site(trial, 2).answer(proposed.session, {VEILER: request})
    assert site(trial, 2).answer(proposed.session, {VEILER: request}) == answer
    with pytest.raises(LocalProtocolError, match="answers once"):
        site(trial, 2).answer(proposed.session, {VEILER: request[:-1] + bytes([request[-1] ^ 1])})


def test_a_site_that_does_not_list_the_mode_declines(mode: Mode, trial: Trial) -> None:
    deployed(trial)
    edit(trial, 3, ('modes = ["veiled", ', "modes = ["))
    with pytest.raises(DeclinedError, match="not in veiled"):
        site(trial, 3).join(invitation(mode="veiled", helpers=(VEILER,), min_survivors=3))


def test_the_audit_finds_that_it_breaks_where_it_says(mode: Mode) -> None:
    rng = np.random.default_rng(0)
    data = bundled("digits")
    population = Population.of(data, rng)
    learner = AFL(
        n_features=64, n_targets=10, feature_format=RowFormat.covering(data.x_train), max_rows=400, max_clients=50
    )
    bench = Bench.of(learner, population, rows_per_client=4, rng=rng)
    found = list(by_coalition(bench, mode, 4))
    assert [one.should_break for one in found] == [False, False, False, True]
    assert all(one.as_stated for one in found)
    assert ATTACKS["row_count"].expected(mode) is Expectation.HIDDEN
