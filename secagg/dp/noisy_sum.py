"""Secure sums of which only a noisy total exists: every client, or the server, adds discrete Gaussian noise."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from secagg.client_input import check_now, resolve
from secagg.dp.errors import PrivacyError
from secagg.dp.noise import CoordinateNoise, DistributedNoise
from secagg.entropy import Entropy, os_entropy
from secagg.errors import ConfigurationError, LocalProtocolError
from secagg.layout import IntVector, Layout
from secagg.protocol_wrapper import ProtocolWrapper
from secagg.sessions import ClientInput, ClientSession, PartyId, ServerSession, SumResult
from secagg.sums import NO_SECRETS, Guarantee, PartySecrets

NOISY = "+noise"
"""What the name of a mode gets when every client adds its share of noise."""

_EXPLANATION = "the total is released with discrete Gaussian noise in it"
"""What noise adds to the explanation of a sum."""

_NOISY = b"noisy "
"""Before what ties a client with noise to its stored session, so that the sum without noise does not restore it."""


def with_headroom(layout: Layout, n_clients: int, noise: DistributedNoise) -> Layout:
    """The layout of the protocol under a ``NoisySum``: room for every client's largest possible share of noise.

    The noise is in its canonical form, and so in the digest of the sum: parties with other noise do not add up.
    """
    return replace(noise.share.widened(layout, n_clients), agreed=noise.digest)


@dataclass(frozen=True, slots=True, kw_only=True)
class NoisySum(ProtocolWrapper):
    """Any secure sum, with each client's share of the noise added before its vector is masked or encrypted.

    Noise comes from a source of its own, by default the operating system, whatever entropy a session's keys and masks
    are drawn from, and from no seed: nothing that unmasking reveals tells anything about it.

    Bounds of sums hold with certainty, because the sampler has no tail beyond 14 standard deviations: no vector is
    ever refused or clipped for its noise, which would tell something.

    Stored sessions of its clients are bound to it: the sum under it does not restore them, since it would send the
    vector without noise. Store a session before the answer that led to it leaves (``DurableClient`` does): a client
    that is restored before its upload draws its noise then, and two uploads would average two noises out.

    Args:
        protocol: the sum under it, with the layout that ``with_headroom`` gives.
        layout: the shape and bounds of vectors before noise.
        noise: how much, and who is counted on.
        noise_entropy: where noise comes from; anything but the default is for simulations.

    Raises:
        PrivacyError: the protocol releases totals of fewer survivors than promised, is stated for more colluders than
            the noise, or has no room for it.
    """

    EXPLANATION: ClassVar[str] = _EXPLANATION

    layout: Layout
    noise: DistributedNoise
    noise_entropy: Entropy = os_entropy

    def __post_init__(self) -> None:
        if self.protocol.survivors_needed < self.noise.min_noise_shares:
            raise PrivacyError(
                f"the noise counts on {self.noise.min_noise_shares} survivors and {self.protocol.name} releases "
                f"totals of {self.protocol.survivors_needed}: raise its threshold or min_survivors, or promise fewer "
                "(each client then adds more noise)"
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
        """The mode's name."""
        return f"{self.protocol.name}{NOISY}"

    @property
    def guarantee(self) -> Guarantee:
        """What the sum under it promises, and how many clients' shares of noise count for nothing."""
        return replace(self.protocol.guarantee, noise_colluders=self.noise.colluders)

    def client(
        self,
        party: PartyId,
        client_input: ClientInput,
        *,
        secrets: PartySecrets = NO_SECRETS,
        entropy: Entropy = os_entropy,
    ) -> ClientSession:
        """A client's session. A given vector is checked now; noise is drawn when the vector is needed, once.

        Raises:
            InvalidVectorError: it does not fit the layout, or is not zero where nothing is released.
            ConfigurationError: a signing key for a sum without identities.
        """
        noised = self._noised(client_input)
        return NoisyClient(self.protocol.client(party, noised, secrets=secrets, entropy=entropy))

    def server(self, *, secrets: PartySecrets = NO_SECRETS, entropy: Entropy = os_entropy) -> ServerSession:
        """The server's session: that of the sum under it."""
        return self.protocol.server(secrets=secrets, entropy=entropy)

    def _noised(self, client_input: ClientInput) -> Callable[[], IntVector]:
        if not callable(client_input):
            check_now(self.layout, client_input, len(self.protocol.clients))
            self.noise.total.check_withheld(client_input)
        return _noised_once(self, client_input)


@dataclass(frozen=True, slots=True, kw_only=True)
class CentralNoisySum(ProtocolWrapper):
    """Any secure sum whose server adds all the noise: for those who trust the server with the exact total.

    Args:
        protocol: the sum under it; its layout is that of vectors before noise.
        noise: what the total gets.
        noise_entropy: where noise comes from; anything but the default is for simulations.
    """

    EXPLANATION: ClassVar[str] = _EXPLANATION

    noise: CoordinateNoise
    noise_entropy: Entropy = os_entropy

    def __post_init__(self) -> None:
        _ = self.noise.widened(self.protocol.layout, 1)

    @property
    def name(self) -> str:
        """The mode's name."""
        return f"{self.protocol.name}+central-noise"

    @property
    def layout(self) -> Layout:
        """The shape and bounds of vectors before noise."""
        return self.protocol.layout

    def client(
        self,
        party: PartyId,
        client_input: ClientInput,
        *,
        secrets: PartySecrets = NO_SECRETS,
        entropy: Entropy = os_entropy,
    ) -> ClientSession:
        """A client's session, without noise; its vector must be zero where nothing is released.

        Raises:
            InvalidVectorError: it does not fit the layout, or is not zero where nothing is released.
            ConfigurationError: a signing key for a sum without identities.
        """
        return self.protocol.client(party, self._checked(client_input), secrets=secrets, entropy=entropy)

    def server(self, *, secrets: PartySecrets = NO_SECRETS, entropy: Entropy = os_entropy) -> ServerSession:
        """A server that shows its total with noise only, and the same noise however often it is asked."""
        exact = self.protocol.server(secrets=secrets, entropy=entropy)
        return _NoisyServer(exact, self.noise, self.noise_entropy)

    def _checked(self, client_input: ClientInput) -> ClientInput:
        """The contribution, if it is zero where nothing is released; a call's vector is looked at when it is made."""
        if not callable(client_input):
            check_now(self.layout, client_input, len(self.protocol.clients))
            self.noise.check_withheld(client_input)
            return client_input

        def make() -> IntVector:
            vector = resolve(self.layout, client_input, len(self.protocol.clients))
            self.noise.check_withheld(vector)
            return vector

        return make


class NoisyClient:
    """A client whose vector gets its noise; of a class of its own, so that no sum without noise takes it for its own.

    Args:
        exact: the session of the sum under the noise.
    """

    def __init__(self, exact: ClientSession) -> None:
        self.exact, self.party = exact, exact.party

    @property
    def snapshot_id(self) -> bytes:
        """What ties a stored session to this one: a session without noise is never restored as one with it."""
        return _NOISY + self.exact.snapshot_id

    def snapshot(self) -> bytes:
        """Return the session under the noise; noise that was not drawn yet is drawn when its vector is needed."""
        return self.exact.snapshot()

    def restore(self, snapshot: bytes) -> None:
        """Go where the snapshot says."""
        self.exact.restore(snapshot)

    def start(self) -> bytes | None:
        """The first message."""
        return self.exact.start()

    def receive(self, message: bytes) -> bytes | None:
        """Answer the server's message."""
        return self.exact.receive(message)


class _NoisyServer:
    """Passes everything on but the exact total."""

    def __init__(self, exact: ServerSession, noise: CoordinateNoise, entropy: Entropy) -> None:
        self._exact, self._noise, self._entropy = exact, noise, entropy
        self._result: SumResult | None = None

    @property
    def snapshot_id(self) -> bytes:
        """What ties a stored session to this one."""
        return _NOISY + self._exact.snapshot_id

    def snapshot(self) -> bytes:
        """Refuse: restored, a server would draw a second noise for one total."""
        raise ConfigurationError("a server that adds noise is not stored: it would draw a second noise for one total")

    def restore(self, snapshot: bytes) -> None:
        """Refuse, as ``snapshot`` does."""
        self.snapshot()

    def receive(self, sender: PartyId, message: bytes) -> None:
        """Take one message of the current round."""
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
        """The noisy sum once the last round is closed, None before."""
        exact = self._exact.result
        if exact is not None and self._result is None:
            noisy = exact.total + self._noise.draw(self._entropy)
            self._result = replace(exact, total=noisy)
        return self._result


def _noised_once(of: NoisySum, client_input: ClientInput) -> Callable[[], IntVector]:
    """What makes a client's noisy vector. One session, one noise: two different ones of one vector tell more."""
    made = False

    def make() -> IntVector:
        nonlocal made
        if made:
            raise LocalProtocolError("this session's noisy vector was made already; start a new session for another")
        vector = resolve(of.layout, client_input, len(of.protocol.clients))
        of.noise.share.check_withheld(vector)
        made = True
        return np.add(vector, of.noise.share.draw(of.noise_entropy))

    return make
