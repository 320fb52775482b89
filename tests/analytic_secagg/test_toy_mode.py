"""A mode with a helper role, defined in this file alone, through everything that knows modes.

No other file names it: what works here works for a mode that somebody brings along.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from support.parties import garbled, knows, registered
from support.rehearsed import CLIENTS as SITES
from support.rehearsed import announced, edit, is_exact, proposal, rehearse, run_config, site

from analytic.afl import AFL
from analytic.row_format import RowFormat
from analytic_secagg.datasets import bundled
from analytic_secagg.modes import HelperRole, Mode
from analytic_secagg.session_config import SessionConfig
from analytic_secagg.site.errors import DeclinedError
from analytic_secagg.site.key_files import read_secret, write_secret
from analytic_secagg.site.roster import Roster
from analytic_secagg.site.session import Session
from analytic_secagg.trial import Trial
from secagg import Guarantee, Layout, PartyId, PartySecrets, SumResult, os_entropy, run_in_memory
from secagg.client_input import check_now, resolve
from secagg.committee import SealingKey
from secagg.config import SERVER, SumConfig, check_min_survivors, max_colluding_clients
from secagg.costs import COUNT_BYTES, PARTY_BYTES, PartyCost
from secagg.encoder import RunningSum
from secagg.entropy import Entropy
from secagg.errors import ConfigurationError, HelperMissingError, LocalProtocolError, PolicyError, RemoteProtocolError
from secagg.party import Party
from secagg.policy import ClientPolicy
from secagg.primitives.boxes import OVERHEAD_BYTES, BoxKey, seal_box
from secagg.primitives.identity import IdentityKey
from secagg.primitives.mask_stream import add_masks
from secagg.ring import RingVector
from secagg.rounds import Round, RoundState, ServerRounds
from secagg.sessions import ClientInput, ClientSession, ServerSession
from secagg.snapshots import CLIENT, HELPER, Stored, binding
from secagg.sums import CLIENT_ROLE, NO_SECRETS, CoalitionView, Upload
from secagg.wire import MessageType, Reader, write_entries
from simulations.__main__ import main
from simulations.audit.attack import Expectation
from simulations.audit.attacks.collusion import by_coalition
from simulations.audit.catalogue import ATTACKS
from simulations.audit.population import Population
from simulations.audit.workbench import Bench

VEILER_ROLE = "veiler"
BOX_BYTES = 32 + OVERHEAD_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class VeiledSum(SumConfig):
    """Each client hides its vector under one mask that it shares with the veiler, who takes the masks' sum off."""

    veiler: PartyId
    veiler_key: bytes
    veiler_identity: bytes = b""
    min_survivors: int

    def _check(self) -> None:
        check_min_survivors(self.min_survivors, self.clients)

    def _own_parameters(self) -> tuple[bytes, ...]:
        needed = self.min_survivors.to_bytes(4, "big")
        return self.veiler.to_bytes(4, "big"), self.veiler_key, self.veiler_identity, needed

    def helper_identity(self, helper: PartyId) -> bytes:
        return self.veiler_identity

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
        return {**self._signing_keys(), VEILER_ROLE: {self.veiler: self.veiler_key}}

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee(
            min_survivors=self.min_survivors,
            max_colluding_clients=max_colluding_clients(self.min_survivors),
            client_reconstruction_threshold=0,
            reconstruction_helpers=self.helpers,
            upload=Upload.UNIFORM,
        )

    @property
    def costs(self) -> Mapping[str, PartyCost]:
        vector, n = self.layout.wire_bytes, len(self.clients)
        asked = COUNT_BYTES + n * (PARTY_BYTES + BOX_BYTES)
        return {
            CLIENT_ROLE: PartyCost.of_payloads([BOX_BYTES + vector], [], vector_bytes=vector),
            VEILER_ROLE: PartyCost.of_payloads([vector], [asked], vector_bytes=vector),
        }

    def explain(self) -> str:
        return f"veiled sum over {len(self.clients)} clients; the veiler and the server must not collude"

    def client(
        self,
        party: PartyId,
        client_input: ClientInput,
        *,
        secrets: PartySecrets = NO_SECRETS,
        entropy: Entropy = os_entropy,
    ) -> ClientSession:
        return VeiledClient(self, party, client_input, secrets, entropy)

    def helper(
        self, party: PartyId, *, secrets: PartySecrets = NO_SECRETS, entropy: Entropy = os_entropy
    ) -> ClientSession:
        if party != self.veiler or secrets.boxes is None or secrets.boxes.public != self.veiler_key:
            raise ConfigurationError(f"the key of the veiler, party {self.veiler}, is needed")
        return Veiler(self, secrets)

    def server(self, *, secrets: PartySecrets = NO_SECRETS, entropy: Entropy = os_entropy) -> ServerSession:
        return VeiledServer(self, secrets)

    def reconstruct_upload(self, knowledge: CoalitionView, target: PartyId) -> RingVector | None:
        payload, vector = knowledge.upload(target), knowledge.upload_as_sent(target, self.layout)
        own = knowledge.secrets.get(self.veiler, NO_SECRETS).boxes
        if payload is not None and vector is not None and own is not None:
            add_masks(vector, [(own.open(payload[:BOX_BYTES], "veil", self.digest), -1)], self.digest)
        return vector


@dataclass(slots=True)
class Spoken:
    has_spoken: bool = False


class VeiledClient(Party, Stored[Spoken]):
    _config: VeiledSum

    def __init__(
        self, config: VeiledSum, party: PartyId, client_input: ClientInput, secrets: PartySecrets, entropy: Entropy
    ) -> None:
        config.index(party)
        check_now(config.layout, client_input, len(config.clients))
        Party.__init__(self, config, party, secrets)
        self._kept, self._client_input, self._entropy = Spoken(), client_input, entropy

    @property
    def snapshot_id(self) -> bytes:
        return binding(CLIENT, self._config.digest, self.party)

    def start(self) -> bytes:
        if self._kept.has_spoken:
            raise LocalProtocolError("one session sends one vector")
        config, seed = self._config, self._entropy(32)
        vector = RingVector.encode(config.layout, resolve(config.layout, self._client_input, len(config.clients)))
        add_masks(vector, [(seed, 1)], config.digest)
        self._kept.has_spoken = True
        return self._seal_message(
            MessageType.COMMITTEE_INPUT, seal_box(config.veiler_key, seed, "veil", config.digest) + vector.to_bytes()
        )

    def receive(self, message: bytes) -> bytes | None:
        raise RemoteProtocolError("a veiled client is asked nothing", peer=SERVER)


class Veiler(Party, Stored[Spoken]):
    _config: VeiledSum

    def __init__(self, config: VeiledSum, secrets: PartySecrets) -> None:
        Party.__init__(self, config, config.veiler, secrets)
        assert secrets.boxes is not None
        self._kept = Spoken()
        self._key: BoxKey | None = secrets.boxes

    @property
    def snapshot_id(self) -> bytes:
        return binding(HELPER, self._config.digest, self.party)

    def start(self) -> None:
        return

    def receive(self, message: bytes) -> bytes:
        config = self._config
        frame = self._open_message(message)
        if self._kept.has_spoken or self._key is None:
            raise LocalProtocolError("the veiler answers once")
        boxes = Reader(frame.payload, peer=SERVER).entries(BOX_BYTES)
        if len(boxes) < config.min_survivors or not boxes.keys() <= set(config.clients):
            raise RemoteProtocolError("too few clients, or strangers", peer=SERVER)
        veil = RingVector.zeros(config.layout)
        add_masks(veil, [(self._key.open(box, "veil", config.digest), 1) for box in boxes.values()], config.digest)
        self._kept.has_spoken, self._key = True, None
        return self._seal_message(MessageType.MASK_SUM, veil.to_bytes())


@dataclass(slots=True, kw_only=True, eq=False)
class VeiledState(RoundState):
    sum: RunningSum
    keys: dict[PartyId, bytes] = field(default_factory=dict)


class VeiledServer(ServerRounds[VeiledState]):
    _config: VeiledSum

    def __init__(self, config: VeiledSum, secrets: PartySecrets) -> None:
        first = Round.of(MessageType.COMMITTEE_INPUT, config.clients)
        ServerRounds.__init__(self, config, VeiledState(round=first, sum=RunningSum(config.layout)), secrets)

    def receive(self, sender: PartyId, message: bytes) -> None:
        with self._taking() as round_:
            payload = bytes(self._due(round_, sender, message).payload)
            if round_.answer is MessageType.MASK_SUM:
                self._kept.sum.words.subtract(RingVector.from_bytes(self._config.layout, payload))
            else:
                self._kept.sum.add(payload[BOX_BYTES:], peer=sender)
                self._kept.keys[sender] = payload[:BOX_BYTES]
            round_.accept(sender)

    def close_round(self) -> Mapping[PartyId, bytes]:
        config = self._config
        with self._closing() as round_:
            if round_.answer is MessageType.COMMITTEE_INPUT:
                self._kept.round = Round.of(MessageType.MASK_SUM, config.helpers)
                asked = write_entries(self._kept.keys)
                return {config.veiler: self._seal_message(MessageType.MASK_REQUEST, asked, config.veiler)}
            if round_.waiting_for:
                raise HelperMissingError(missing=config.helpers)
            self._kept.result = SumResult(total=self._kept.sum.words.decode(), survivors=tuple(sorted(self._kept.keys)))
            self._kept.round = None
            return {}


def make(setup: SessionConfig) -> VeiledSum:
    ((veiler, identity),) = setup.helper_keys.items()
    if veiler not in setup.announced:
        raise ConfigurationError(f"the key of the veiler, party {veiler}, is needed")
    return VeiledSum(
        **setup.common,
        veiler=veiler,
        veiler_key=SealingKey.from_bytes(setup.announced[veiler]).key,
        veiler_identity=identity if setup.identities else b"",
        min_survivors=setup.survivors,
    )


def announce(setup: SessionConfig, secrets: PartySecrets) -> tuple[bytes, PartySecrets]:
    boxes, identity = BoxKey.generate(os_entropy), secrets.identity
    assert identity is not None
    return SealingKey.signed(identity, boxes.public).to_bytes(), replace(secrets, boxes=boxes)


ROLE = HelperRole(name="veiler", table="veilers", at_most=1, has_epochs=True)
VEILER: PartyId = 301
LAYOUT = Layout.of([("entries", 3, 1000)])
COHORT = (1, 2, 3, 4, 5)


@pytest.fixture
def mode() -> Iterator[Mode]:
    """The mode, known to everybody within the test."""
    with registered(Mode(name="veiled", make=make, helper=ROLE, announce=announce)) as mode:
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


def test_comparisons_and_the_audit_take_it_by_its_name(mode: Mode, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "--modes", "plain,veiled", "--clients", "5", "--dropout", "0.2"]) == 0
    assert "all 2 runs equal the pooled model of the surviving clients, bit for bit" in capsys.readouterr().out
    few = ["--attacks", "label_histogram,uniformity", "--epsilon", "none", "--cohorts", "3", "--sessions", "1"]
    assert main(["audit", "--modes", "plain,veiled", *few, "--clients", "10"]) == 0
    assert "Messages (veiled): whoever sees a client's message learnt nothing" in capsys.readouterr().out


def deployed(trial: Trial, *, modes: str = '"veiled"') -> None:
    """Give a trial a veiler: in every roster, and in the file of site 2."""
    own = IdentityKey.generate()
    for path in trial.folder.glob("*/roster.toml"):
        roster = Roster.read(path)
        beside = {**roster.beside, ROLE.table: {VEILER: own.public}}
        path.write_text(roster.model_copy(update={"beside": beside}).to_toml())
    write_secret(trial.folder / "site-2" / "veiler.key", own.secret)
    with (trial.folder / "site-2" / "site.toml").open("a") as file:
        file.write(f'\n[veiler]\nparty = {VEILER}\nidentity = "veiler.key"\n')
    for party in SITES:
        edit(trial, party, ("modes = [", f"modes = [{modes}, "))


def test_a_rehearsal_whose_sites_know_nothing_but_their_files_is_exact(mode: Mode, trial: Trial) -> None:
    """Each delivery is a fresh process, and comes twice: sessions are stored, restored and repeat themselves."""
    deployed(trial)
    rehearse(trial.folder, run_config(mode="veiled"), deliveries=2)
    is_exact(trial, list(SITES))


def test_a_veiler_that_was_killed_answers_the_same_and_nothing_else(mode: Mode, trial: Trial) -> None:
    deployed(trial)
    proposed = announced(trial, proposal(mode="veiled", helpers=(VEILER,), min_survivors=3))
    joined = {party: message for number in SITES for party, message in site(trial, number).join(proposed).items()}
    agreed = Session.of(proposed, Roster.read(trial.folder / "server" / "roster.toml"))
    own = IdentityKey(read_secret(trial.folder / "server" / "identity.key"))
    server = agreed.protocol.server(secrets=knows(own))
    for party in agreed.protocol.clients:
        server.receive(party, joined[party])
    (request,) = server.close_round().values()
    answer = site(trial, 2).answer(proposed.session, {VEILER: request})
    assert site(trial, 2).answer(proposed.session, {VEILER: request}) == answer
    with pytest.raises(LocalProtocolError, match="answers once"):
        site(trial, 2).answer(proposed.session, {VEILER: garbled(request, -1, 1, {SERVER: own})})


def test_a_site_that_does_not_list_the_mode_declines(mode: Mode, trial: Trial) -> None:
    deployed(trial)
    edit(trial, 3, ('modes = ["veiled", ', "modes = ["))
    with pytest.raises(DeclinedError, match="not in veiled"):
        site(trial, 3).join(announced(trial, proposal(mode="veiled", helpers=(VEILER,), min_survivors=3)))


def test_the_audit_finds_that_it_breaks_where_it_says(mode: Mode) -> None:
    rng = np.random.default_rng(0)
    data = bundled("digits")
    population = Population.of(data, rng)
    own = RowFormat.covering(data.x_train)
    learner = AFL(n_features=64, n_targets=10, feature_format=own, max_rows=400, max_clients=50)
    bench = Bench.of(learner, population, feature_format=own, rows_per_client=4, rng=rng)
    found = list(by_coalition(bench, mode, 4))
    assert [one.should_break for one in found] == [False, False, False, True]
    assert all(one.as_stated for one in found)
    assert ATTACKS["row_count"].expected(mode) is Expectation.HIDDEN
