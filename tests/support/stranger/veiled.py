"""A mode of another package whose helper has a role of its own: a veiler takes the masks off the sum of all vectors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from analytic_secagg.modes import HelperRole, Mode
from analytic_secagg.session_config import SessionConfig
from secagg import Guarantee, PartyId, PartySecrets, SumResult, os_entropy
from secagg.client_input import check_now, resolve
from secagg.committee import SealingKey
from secagg.config import SERVER, SumConfig, check_min_survivors, max_colluding_clients
from secagg.costs import COUNT_BYTES, PARTY_BYTES, PartyCost
from secagg.encoder import RunningSum
from secagg.entropy import Entropy
from secagg.errors import ConfigurationError, HelperMissingError, LocalProtocolError, RemoteProtocolError
from secagg.party import Party
from secagg.primitives.boxes import OVERHEAD_BYTES, BoxKey, seal_box
from secagg.primitives.mask_stream import add_masks
from secagg.ring import RingVector
from secagg.rounds import Round, RoundState, ServerRounds
from secagg.sessions import ClientInput, ClientSession, ServerSession
from secagg.snapshots import CLIENT, HELPER, Stored, binding
from secagg.sums import CLIENT_ROLE, NO_SECRETS, CoalitionView, Upload
from secagg.wire import MessageType, Reader, write_entries

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
        integers = resolve(config.layout, self._client_input, len(config.clients))
        vector = RingVector.encode(config.layout, integers)
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
                self._kept.sum.words.subtract_bytes(payload)
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
"""Its parties are under [beside.veilers] of a roster; a site that is one has the table [veiler] in its own file."""

MODE = Mode(name="veiled", make=make, helper=ROLE, announce=announce)
