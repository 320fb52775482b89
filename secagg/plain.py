"""Sums whose vectors only their encoder hides: in the clear, the oracle of every test, or encrypted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from secagg.config import max_colluding_clients, two_thirds
from secagg.costs import PartyCost
from secagg.encoder import EncodedSum, RunningSum
from secagg.entropy import Entropy, os_entropy
from secagg.errors import ConfigurationError
from secagg.one_shot import OneShotClient
from secagg.ring import RingVector
from secagg.rounds import Round, RoundState, ServerRounds
from secagg.sessions import ClientInput, ClientSession, PartyId, ServerSession
from secagg.sums import CLIENT_ROLE, NO_SECRETS, CoalitionView, Guarantee, PartySecrets, Upload
from secagg.wire import MessageType, Reader


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainSum(EncodedSum):
    """Each client sends its vector once, as its encoder says. In the clear, whoever reads the upload reads the vector.

    Encrypted, the server adds what it cannot read, and the key holder decrypts the sum, once, if it is over enough
    clients. The server must then be semi-honest: it could pass one client's ciphertext for the sum (masks under the
    encryption prevent that).

    Args:
        min_survivors: fewest vectors for which a total is released. None takes 1 in the clear, and two thirds, rounded
            down, plus one where vectors are encrypted.
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
        """The mode's name."""
        return self.encoder.name_of("plain")

    @property
    def survivors_needed(self) -> int:
        """Fewest clients whose vectors a released total holds."""
        if self.min_survivors is None:
            return two_thirds(self.clients) if self.helpers else 1
        return self.min_survivors

    @property
    def guarantee(self) -> Guarantee:
        """In the clear nothing but the number of vectors in a total; encrypted, no more than the key holder keeps."""
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
        """A client's, and of whom the encoder needs."""
        client = PartyCost.of_payloads(
            [self.vector_bytes], [], vector_bytes=self.vector_bytes, signature_bytes=self.signature_bytes
        )
        return {CLIENT_ROLE: client, **self.encoder.helper_costs(self)}

    def explain(self) -> str:
        """Whom it needs to trust, how many must stay, what it costs."""
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
        """Return a client that sends its vector with its first message; it draws no entropy (SEAL draws its own)."""
        return PlainClient(self, party, client_input, secrets=secrets)

    def server(self, *, secrets: PartySecrets = NO_SECRETS, entropy: Entropy = os_entropy) -> ServerSession:
        """Return a server that adds what arrives; it draws no entropy."""
        return PlainServer(self, secrets=secrets)

    def reconstruct_upload(self, knowledge: CoalitionView, target: PartyId) -> RingVector | None:
        """Return what the encoder gives away: in the clear the vector, else what a coalition can decrypt."""
        return self.encoder.opened(self, knowledge, target)

    def _own_parameters(self) -> tuple[bytes, ...]:
        needed = self.survivors_needed.to_bytes(4, "big")
        return *self.encoder.digested, needed, *filter(None, [self.encoder.holder_identity])


class PlainClient(OneShotClient):
    """Sends one message and expects none."""

    _config: PlainSum

    def start(self) -> bytes:
        """Return the vector as it travels."""
        config, vector = self._config, self._vector()
        self._ask_consent(None)
        payload = config.encoder.encode(vector, config)
        self._mark_sent()
        return self._seal_message(config.encoder.input_type, payload)


@dataclass(slots=True, kw_only=True, eq=False)
class PlainServerState(RoundState):
    """Beside the round, the sum so far and, once no more vectors are taken, who is in it."""

    sum: RunningSum
    survivors: tuple[PartyId, ...] = ()


class PlainServer(ServerRounds[PlainServerState]):
    """Adds vectors as they arrive, and has the key holder decrypt the sum where they are encrypted."""

    _config: PlainSum

    def __init__(self, config: PlainSum, *, secrets: PartySecrets) -> None:
        first = Round.of(config.encoder.input_type, config.clients)
        ServerRounds.__init__(self, config, PlainServerState(round=first, sum=config.encoder.begin(config)), secrets)

    def receive(self, sender: PartyId, message: bytes) -> None:
        """Take a client's vector or the key holder's answer, or refuse it and stay as before."""
        with self._taking() as round_:
            frame = self._due(round_, sender, message)
            if round_.answer is MessageType.DECRYPTED_SUM:
                self._kept.sum.add_decrypted(Reader(frame.payload, peer=sender))
            else:
                self._kept.sum.add(frame.payload, peer=sender)
            round_.accept(sender)

    def close_round(self) -> Mapping[PartyId, bytes]:
        """Ask the key holder, where there is one; then release the total over those who answered.

        Raises:
            TooFewSurvivorsError: too few clients sent a vector.
            HelperMissingError: the key holder has not answered.
            SumOutOfBoundsError: the total lies outside its bound.
        """
        with self._closing() as round_:
            if round_.answer is not MessageType.DECRYPTED_SUM:
                decryption_request = self._decryption_request(round_)
                if decryption_request is not None:
                    return decryption_request
            else:
                round_.need_all()
            return self._end(self._kept.sum.words, self._kept.survivors)

    def _decryption_request(self, round_: Round) -> Mapping[PartyId, bytes] | None:
        config = self._config
        round_.need(config.survivors_needed)
        self._kept.survivors = tuple(sorted(round_.answered))
        decryption_request = self._kept.sum.decryption_request(self._kept.survivors)
        if decryption_request is None:
            return None
        (holder,) = config.helpers
        self._kept.round = Round.of(MessageType.DECRYPTED_SUM, config.helpers)
        return {holder: self._seal_message(MessageType.DECRYPTION_REQUEST, decryption_request, holder)}
