"""Sums with discrete Gaussian noise, added by every client (distributed) or by the server (central)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from secagg.client_input import check_now, integers, resolve
from secagg.dp.errors import PrivacyError
from secagg.dp.noise import CoordinateNoise, DistributedNoise
from secagg.entropy import Entropy, os_entropy
from secagg.errors import ConfigurationError, LocalProtocolError
from secagg.layout import IntVector, Layout
from secagg.protocol_wrapper import ProtocolWrapper
from secagg.sessions import ClientInput, ClientSession, PartyId, ServerSession, SumResult
from secagg.sums import NO_SECRETS, Guarantee, PartySecrets

NOISY = "+noise"
"""Suffix of the name of a mode with distributed noise."""

_EXPLANATION = "the total is released with discrete Gaussian noise in it"
"""Line that noise adds to ``explain``."""

_NOISY = b"noisy "
"""Prefix of the snapshot identifier, so that the wrapped sum does not restore these sessions."""


def with_headroom(layout: Layout, n_clients: int, noise: DistributedNoise) -> Layout:
    """Return the layout of the sum inside a ``NoisySum``: with headroom for every client's largest share of noise.

    Its ``agreed`` field contains the digest of the noise, so that parties with other noise have another configuration.

    Args:
        layout: shape and bounds of vectors without noise.
        n_clients: size of the cohort.
        noise: the distributed noise.

    >>> layout = Layout.of([("counts", 2, 100)])
    >>> total = CoordinateNoise(levels=np.ones(2, dtype=np.uint8), variances=(300,))
    >>> with_headroom(layout, 3, DistributedNoise(total=total, min_noise_shares=3)).segments[0].bound
    520
    """
    return replace(noise.share.widened(layout, n_clients), agreed=noise.digest)


@dataclass(frozen=True, slots=True, kw_only=True)
class NoisySum(ProtocolWrapper):
    """A sum with distributed noise: each client adds its share before its vector is masked or encrypted.

    Noise has its own source of randomness, by default the operating system, independent of keys and masks: unmasking
    reveals nothing about it. The sampler is truncated at 14 standard deviations, so the bounds hold with certainty and
    no vector is refused or clipped because of its noise.

    The wrapped sum does not restore stored sessions of these clients, since it would send the vector without noise.
    Store a session before sending its answer (``DurableClient`` does): a client that is restored before its upload
    draws new noise, and two uploads would average two draws.

    Args:
        protocol: the wrapped sum, with the layout from ``with_headroom``.
        layout: shape and bounds of vectors without noise.
        noise: the distributed noise.
        noise_entropy: source of the noise; anything but the default is for simulations.

    Raises:
        PrivacyError: the wrapped sum releases totals with fewer clients than ``min_noise_shares``, assumes more
            colluders than the noise, or has another layout.

    >>> from secagg import MaskedSum, new_session_id, run_in_memory
    >>> layout, clients = Layout.of([("counts", 2, 100)]), (1, 2, 3, 4)
    >>> total = CoordinateNoise(levels=np.ones(2, dtype=np.uint8), variances=(300,))
    >>> noise = DistributedNoise(total=total, min_noise_shares=3)
    >>> masked = MaskedSum(layout=with_headroom(layout, 4, noise), clients=clients, session_id=new_session_id())
    >>> noisy = NoisySum(protocol=masked, layout=layout, noise=noise)
    >>> run_in_memory(noisy, {party: np.array([party, 10]) for party in clients}).result.total.shape
    (2,)
    """

    EXPLANATION: ClassVar[str] = _EXPLANATION

    layout: Layout
    noise: DistributedNoise
    noise_entropy: Entropy = os_entropy

    def __post_init__(self) -> None:
        if self.protocol.survivors_needed < self.noise.min_noise_shares:
            raise PrivacyError(
                f"the noise counts on {self.noise.min_noise_shares} survivors and {self.protocol.name} releases "
                f"totals of {self.protocol.survivors_needed}: raise its threshold or min_survivors, or lower "
                "min_noise_shares (each client then adds more noise)"
            )
        assumed = self.protocol.guarantee.assumed_colluders
        if self.noise.colluders < assumed:
            raise PrivacyError(
                f"the sum under the noise is stated for {assumed} colluding clients, who know their own shares of the "
                f"noise, and the shares are sized for {self.noise.colluders}: tolerate {assumed} colluders at least"
            )
        if self.protocol.layout != with_headroom(self.layout, len(self.protocol.clients), self.noise):
            raise PrivacyError("the protocol under the noise needs the layout that with_headroom gives")

    @property
    def name(self) -> str:
        """Name of the mode."""
        return f"{self.protocol.name}{NOISY}"

    @property
    def guarantee(self) -> Guarantee:
        """Guarantees of the wrapped sum, with the number of noise shares that do not count."""
        return replace(self.protocol.guarantee, noise_colluders=self.noise.colluders)

    def client(
        self,
        party: PartyId,
        client_input: ClientInput,
        *,
        secrets: PartySecrets = NO_SECRETS,
        entropy: Entropy = os_entropy,
    ) -> ClientSession:
        """Create a client's session. An array is checked now; noise is drawn once, when the vector is needed.

        Raises:
            InvalidVectorError: the vector does not fit the layout, or is not zero at a coordinate that is not released.
            ConfigurationError: see ``secagg.SumProtocol.client``.
        """
        vector, made = _checked(self.layout, len(self.clients), self.noise.total, client_input), False

        def noised() -> IntVector:
            nonlocal made  # two draws of noise on one vector would reveal more
            if made:
                raise LocalProtocolError(
                    "this session's noisy vector was made already; start a new session for another"
                )
            exact = vector()
            made = True
            return np.add(exact, self.noise.share.draw(self.noise_entropy))

        return NoisyClient(self.protocol.client(party, noised, secrets=secrets, entropy=entropy))

    def server(self, *, secrets: PartySecrets = NO_SECRETS, entropy: Entropy = os_entropy) -> ServerSession:
        """Create the server's session of the wrapped sum."""
        return self.protocol.server(secrets=secrets, entropy=entropy)


@dataclass(frozen=True, slots=True, kw_only=True)
class CentralNoisySum(ProtocolWrapper):
    """A sum with central noise: the server adds all noise and must be trusted with the exact total.

    Args:
        protocol: the wrapped sum; its layout is that of vectors without noise.
        noise: noise of the total.
        noise_entropy: source of the noise; anything but the default is for simulations.

    Raises:
        PrivacyError: the size of the noise differs from the layout.

    >>> from secagg import PlainSum, new_session_id
    >>> plain = PlainSum(layout=Layout.of([("counts", 2, 100)]), clients=(1, 2), session_id=new_session_id())
    >>> CentralNoisySum(protocol=plain, noise=CoordinateNoise(levels=np.ones(2, dtype=np.uint8), variances=(300,))).name
    'plain+central-noise'
    """

    EXPLANATION: ClassVar[str] = _EXPLANATION

    noise: CoordinateNoise
    noise_entropy: Entropy = os_entropy

    def __post_init__(self) -> None:
        _ = self.noise.widened(self.protocol.layout, 1)

    @property
    def name(self) -> str:
        """Name of the mode."""
        return f"{self.protocol.name}+central-noise"

    @property
    def layout(self) -> Layout:
        """Shape and bounds of vectors without noise."""
        return self.protocol.layout

    def client(
        self,
        party: PartyId,
        client_input: ClientInput,
        *,
        secrets: PartySecrets = NO_SECRETS,
        entropy: Entropy = os_entropy,
    ) -> ClientSession:
        """Create a client's session, without noise.

        Raises:
            InvalidVectorError: the vector does not fit the layout, or is not zero at a coordinate that is not released.
            ConfigurationError: see ``secagg.SumProtocol.client``.
        """
        vector = _checked(self.layout, len(self.clients), self.noise, client_input)
        return self.protocol.client(party, vector, secrets=secrets, entropy=entropy)

    def server(self, *, secrets: PartySecrets = NO_SECRETS, entropy: Entropy = os_entropy) -> ServerSession:
        """Create a server's session that adds noise to its total, once."""
        exact = self.protocol.server(secrets=secrets, entropy=entropy)
        return _NoisyServer(exact, self.noise, self.noise_entropy)


class NoisyClient:
    """A client of a ``NoisySum``, with its own snapshot identifier.

    Args:
        exact: session of the wrapped sum.
    """

    def __init__(self, exact: ClientSession) -> None:
        self.exact, self.party = exact, exact.party

    @property
    def snapshot_id(self) -> bytes:
        """Identifier that a snapshot must match to be restored; it differs from that of a session without noise."""
        return _NOISY + self.exact.snapshot_id

    def snapshot(self) -> bytes:
        """Return the state of the wrapped session. Noise that was not drawn yet is drawn when the vector is needed."""
        return self.exact.snapshot()

    def restore(self, snapshot: bytes) -> None:
        """Restore the state of a snapshot."""
        self.exact.restore(snapshot)

    def start(self) -> bytes | None:
        """Return the first message."""
        return self.exact.start()

    def receive(self, message: bytes) -> bytes | None:
        """Return the answer to the server's message."""
        return self.exact.receive(message)


class _NoisyServer:
    """A server that passes everything on except the exact total."""

    def __init__(self, exact: ServerSession, noise: CoordinateNoise, entropy: Entropy) -> None:
        self._exact, self._noise, self._entropy = exact, noise, entropy
        self._result: SumResult | None = None

    @property
    def snapshot_id(self) -> bytes:
        """Identifier that a snapshot must match to be restored."""
        return _NOISY + self._exact.snapshot_id

    def snapshot(self) -> bytes:
        """Refuse, since a restored server would draw a second noise for one total."""
        raise ConfigurationError("a server that adds noise is not stored: it would draw a second noise for one total")

    def restore(self, snapshot: bytes) -> None:
        """Refuse, as ``snapshot`` does."""
        self.snapshot()

    def receive(self, sender: PartyId, message: bytes) -> None:
        """Process one message of the current round."""
        self._exact.receive(sender, message)

    def close_round(self) -> Mapping[PartyId, bytes]:
        """End the round and return the next messages by recipient."""
        return self._exact.close_round()

    @property
    def waiting_for(self) -> frozenset[PartyId]:
        """Parties asked in this round that have not answered yet."""
        return self._exact.waiting_for

    @property
    def result(self) -> SumResult | None:
        """Noisy result after the last round; None before."""
        exact = self._exact.result
        if exact is not None and self._result is None:
            noisy = exact.total + self._noise.draw(self._entropy)
            self._result = replace(exact, total=noisy)
        return self._result


def _checked(
    layout: Layout, n_clients: int, noise: CoordinateNoise, client_input: ClientInput
) -> Callable[[], IntVector]:
    """Return a call that makes a client's vector, checked: it is zero where nothing is released.

    An array is checked now too, a callable's result when it is needed.
    """
    if not callable(client_input):
        check_now(layout, client_input, n_clients)
        noise.check_withheld(client_input)

    def make() -> IntVector:
        vector = integers(resolve(layout, client_input, n_clients))
        noise.check_withheld(vector)
        return vector

    return make
