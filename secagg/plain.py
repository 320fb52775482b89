"""Sums without masks: in the clear, as the reference for all other modes, or encrypted with BFV or CKKS."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from secagg.config import max_colluding_clients, two_thirds
from secagg.costs import PartyCost
from secagg.encoder import EncodedSum, RunningSum
from secagg.entropy import Entropy, os_entropy
from secagg.errors import ConfigurationError, RemoteProtocolError
from secagg.one_shot import OneShotClient
from secagg.ring import RingVector
from secagg.rounds import Round, RoundState, ServerRounds
from secagg.sessions import ClientInput, ClientSession, PartyId, ServerSession
from secagg.sums import CLIENT_ROLE, NO_SECRETS, CoalitionView, Guarantee, PartySecrets, Upload
from secagg.wire import MessageType, Reader, read_parties, write_parties


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainSum(EncodedSum):
    """A sum in which each client sends its vector once, in the clear or encrypted.

    In the clear (mode ``plain``) every reader of an upload reads the vector: for tests and public data. With an
    ``Encrypted`` encoder (modes ``bfv``, ``ckks``) the server adds ciphertexts and the key holder decrypts one sum over
    enough clients. The server must then be semi-honest: it could present one client's ciphertext as the sum.

    Args:
        min_survivors: minimum number of vectors in a released total. None takes 1 in the clear, and two thirds of the
            cohort, rounded down, plus one with encryption.

    >>> import numpy as np
    >>> from secagg import Layout, new_session_id, run_in_memory
    >>> layout = Layout.of([("counts", 2, 100)])
    >>> protocol = PlainSum(layout=layout, clients=(1, 2, 3), session_id=new_session_id())
    >>> run_in_memory(protocol, {party: np.array([party, 10]) for party in protocol.clients}).result.total
    array([ 6, 30])
    """

    min_survivors: int | None = None

    def _check(self) -> None:
        self.encoder.check(self)
        if not 1 <= self.survivors_needed <= len(self.clients):
            raise ConfigurationError(
                f"min_survivors must be 1 to the cohort's {len(self.clients)}, not {self.min_survivors}"
            )

    @property
    def name(self) -> str:
        """Name of the mode."""
        return self.encoder.name_of("plain")

    @property
    def survivors_needed(self) -> int:
        """Minimum number of clients whose vectors a released total contains."""
        if self.min_survivors is None:
            return two_thirds(self.clients) if self.helpers else 1
        return self.min_survivors

    @property
    def guarantee(self) -> Guarantee:
        """Guarantees: in the clear none but the minimum of survivors; encrypted, privacy against the server."""
        return Guarantee(
            min_survivors=self.survivors_needed,
            max_colluding_clients=max_colluding_clients(self.survivors_needed),
            client_reconstruction_threshold=0,
            reconstruction_helpers=self.helpers,
            upload=Upload.CIPHERTEXT if self.helpers else Upload.PLAINTEXT,
            binds_context=False,
            helpers_learn_total=bool(self.helpers),
            helpers_confirm_guesses=self.encoder.confirms_guesses,
        )

    @property
    def costs(self) -> Mapping[str, PartyCost]:
        """Costs of a client and of the encoder's helpers."""
        client = PartyCost.of_payloads(
            [self.vector_bytes], [], vector_bytes=self.vector_bytes, signature_bytes=self.signature_bytes
        )
        return {CLIENT_ROLE: client, **self.encoder.helper_costs(self)}

    def explain(self) -> str:
        """Describe in words and numbers what these parameters guarantee and cost."""
        lines = self.encoder.explain(self)
        return "\n".join(lines if self.helpers else [*lines, f"  a client {self.costs[CLIENT_ROLE]}"])

    def client(
        self,
        party: PartyId,
        client_input: ClientInput,
        *,
        secrets: PartySecrets = NO_SECRETS,
        entropy: Entropy = os_entropy,
    ) -> ClientSession:
        """Create a client that sends its vector in its first message; it uses no ``entropy`` (SEAL has its own)."""
        return PlainClient(self, party, client_input, secrets=secrets)

    def server(self, *, secrets: PartySecrets = NO_SECRETS, entropy: Entropy = os_entropy) -> ServerSession:
        """Create the server's session; it uses no ``entropy``."""
        return PlainServer(self, secrets=secrets)

    def reconstruct_upload(self, knowledge: CoalitionView, target: PartyId) -> RingVector | None:
        """Return the vector in the clear, or what the coalition can decrypt of it."""
        return self.encoder.opened(self, knowledge, target)

    def _own_parameters(self) -> tuple[bytes, ...]:
        needed = self.survivors_needed.to_bytes(4, "big")
        return *self.encoder.digested, needed, *filter(None, [self.encoder.holder_identity])


class PlainClient(OneShotClient):
    """A client that sends one message and receives none."""

    _config: PlainSum

    def start(self) -> bytes:
        """Return the message with the encoded vector."""
        config, vector = self._config, self._vector()
        self._ask_consent(None)
        encoded = config.encoder.encode(vector, config)
        self._mark_sent()
        return self._seal_message(config.encoder.input_type, b"", vector=encoded)


@dataclass(slots=True, kw_only=True, eq=False)
class PlainServerState(RoundState):
    """State of the server: the round, the sum so far and, after the round of vectors, the survivors."""

    sum: RunningSum
    survivors: tuple[PartyId, ...] = ()


class PlainServer(ServerRounds[PlainServerState]):
    """A server that adds vectors as they arrive and, with encryption, asks the key holder to decrypt the sum."""

    _config: PlainSum

    def __init__(self, config: PlainSum, *, secrets: PartySecrets) -> None:
        first = Round.of(config.encoder.input_type, config.clients)
        ServerRounds.__init__(self, config, PlainServerState(round=first, sum=config.encoder.begin(config)), secrets)

    def receive(self, sender: PartyId, message: bytes) -> None:
        """Process a client's vector or the key holder's answer; a refused message changes nothing."""
        with self._taking() as round_:
            frame = self._due(round_, sender, message)
            if round_.answer is MessageType.DECRYPTED_SUM:
                self._kept.sum.add_decrypted(Reader(frame.payload, peer=sender))
            elif round_.answer is MessageType.SURVIVOR_SET:
                if read_parties(Reader(frame.payload, peer=sender)) != self._kept.survivors:
                    raise RemoteProtocolError("it agreed to other survivors than it was asked for", peer=sender)
            else:
                self._kept.sum.add(frame.payload, peer=sender)
            round_.accept(sender)

    def close_round(self) -> Mapping[PartyId, bytes]:
        """Ask the key holder, if there is one; then release the total over the clients that answered.

        With identities it is asked twice: first whether it agrees to the survivors, then for their decrypted sum.

        Raises:
            TooFewSurvivorsError: too few clients sent a vector.
            HelperMissingError: the key holder has not answered.
            SumOutOfBoundsError: the total exceeds its bound.
        """
        with self._closing() as round_:
            config = self._config
            is_first = round_.answer is config.encoder.input_type
            if is_first:
                round_.need(config.survivors_needed)
                self._kept.survivors = tuple(sorted(round_.answered))
            else:
                round_.need_all()
            if is_first and config.encoder.agrees_first(config):
                asked = write_parties(self._kept.survivors)
                return self._ask(MessageType.SURVIVOR_SET, asked, MessageType.SURVIVOR_SET)
            if round_.answer is not MessageType.DECRYPTED_SUM:
                request = self._kept.sum.decryption_request(self._kept.survivors)
                if request is not None:
                    return self._ask(MessageType.DECRYPTION_REQUEST, request, MessageType.DECRYPTED_SUM)
            return self._end(self._kept.sum.words, self._kept.survivors)

    def _ask(self, type_: MessageType, payload: bytes, answer: MessageType) -> Mapping[PartyId, bytes]:
        """Open a round of the key holder's answer."""
        (holder,) = self._config.helpers
        self._kept.round = Round.of(answer, [holder])
        return {holder: self._seal_message(type_, payload, holder)}
