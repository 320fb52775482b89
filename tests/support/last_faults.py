"""Thirty faults, written from the sources of the three packages alone, by somebody who had seen no audit."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from support.held_out_faults import Fresh, into

LAST: list[Fresh] = []
fault = into(LAST)


# Those that give a vector: the server alone, or with whom the mode is sold against


@fault("the seed of a client's own mask is the secret key of its pairwise masks", gives=True)
def one_secret_for_both_masks(m: Any) -> None:
    # Survivors' shares of the seed are revealed in every sum: the server rebuilds the key and takes all masks off.
    from secagg.masked.client import MaskedClient

    original = MaskedClient._share_secrets

    def share(self: Any, reader: Any) -> bytes:
        draw, own = self._entropy, [self._own.masking.secret]
        self._entropy = lambda n: own.pop() if own and n == 32 else draw(n)
        try:
            return original(self, reader)
        finally:
            self._entropy = draw

    m.setattr(MaskedClient, "_share_secrets", share)


@fault("mask key and self-mask seed are shared with the same polynomial, but for its constant", gives=True)
def one_polynomial_for_two_secrets(m: Any) -> None:
    # The revealed shares of the seed give the whole polynomial; one colluding holder's share of the key then its
    # constant, which is the key.
    from secagg.masked import client

    def split(self: Any, secret: bytes, points: dict[int, int]) -> dict[int, bytes]:
        drawn = [self._own.sealing.secret]

        def again(n: int) -> bytes:
            drawn.append(hashlib.sha256(b"coefficient" + drawn[-1]).digest())
            return hashlib.shake_256(drawn[-1]).digest(n)

        needed = self._config.shares_needed
        return client.split(secret, threshold=needed, points=list(points.values()), entropy=again)

    m.setattr(client.MaskedClient, "_split", split)


@fault("secrets are shared so that half of the threshold, and one, opens them", gives=True)
def polynomials_of_half_the_degree(m: Any) -> None:
    # Any ``threshold`` shares still combine, so that honest runs do not change; fewer colluders than promised open.
    from secagg.masked import client

    def split(self: Any, secret: bytes, points: dict[int, int]) -> dict[int, bytes]:
        needed = self._config.shares_needed // 2 + 1
        return client.split(secret, threshold=needed, points=list(points.values()), entropy=self._entropy)

    m.setattr(client.MaskedClient, "_split", split)


@fault("the nonces of the boxes with shares are pieces of the sender's secret mask key", gives=True)
def nonces_that_tell(m: Any) -> None:
    # A nonce travels in the clear through the server: three boxes hold the 32 bytes from which all pairwise masks come.
    from secagg.masked.client import MaskedClient

    original = MaskedClient._seal

    def seal(self: Any, recipient: int, pair: bytes) -> bytes:
        draw, place = self._entropy, sorted(self._kept.roster).index(recipient) % 3
        piece = self._own.masking.secret[12 * place : 12 * place + 12]
        self._entropy = lambda n: (piece + draw(n))[:n]
        try:
            return original(self, recipient, pair)
        finally:
            self._entropy = draw

    m.setattr(MaskedClient, "_seal", seal)


@fault("the secret key of pairwise masks is stretched from three random bytes", gives=True)
def a_mask_key_of_24_bits(m: Any) -> None:
    # Its public half is in the roster's message: the server tries 2^24 keys.
    from secagg.masked.client import MaskedClient
    from secagg.primitives.agreement import KeyPair

    original = MaskedClient.__init__

    def init(self: Any, *args: Any, **named: Any) -> None:
        original(self, *args, **named)
        short = self._kept.secrets.masking.secret[:3]
        self._kept.secrets.masking = KeyPair(hashlib.sha256(b"mask key" + short).digest())

    m.setattr(MaskedClient, "__init__", init)


@fault("a mask covers the low two bytes of each word only", gives=True)
def masks_of_two_bytes(m: Any) -> None:
    # The high bytes of sums of squares, most of what they say, travel bare.
    def add(words: Any, streams: Any) -> None:
        low = words.dtype.type(min(0xFFFF, int(np.iinfo(words.dtype).max)))
        for stream, sign in streams:
            mask = np.frombuffer(stream.update(bytes(words.nbytes)), dtype=words.dtype) & low
            (np.add if sign > 0 else np.subtract)(words, mask, out=words)

    m.setattr("secagg.primitives.mask_stream._add_streams", add)


@fault("one block of each keystream masks all entries of a segment", gives=True)
def one_block_again_and_again(m: Any) -> None:
    # Entries that stand a block apart have one mask: their differences are bare, and so the vector but for two numbers.
    def add(words: Any, streams: Any) -> None:
        for stream, sign in streams:
            mask = np.resize(np.frombuffer(stream.update(bytes(16)), dtype=words.dtype), len(words))
            (np.add if sign > 0 else np.subtract)(words, mask, out=words)

    m.setattr("secagg.primitives.mask_stream._add_streams", add)


@fault("the key pair that shares are sealed with follows from the digest of the set-up and the party", gives=True)
def sealing_keys_of_public_bytes(m: Any) -> None:
    # Perhaps so that a client comes back after a crash: the server opens all boxes and combines the shares in them.
    from secagg.masked.client import MaskedClient
    from secagg.primitives.agreement import KeyPair

    original = MaskedClient.__init__

    def init(self: Any, config: Any, party: int, *args: Any, **named: Any) -> None:
        original(self, config, party, *args, **named)
        said = config.setup_digest + party.to_bytes(4, "big")
        self._kept.secrets.sealing = KeyPair(hashlib.sha256(said).digest())

    m.setattr(MaskedClient, "__init__", init)


@fault("on the complete graph a client masks with the clients before and after it alone", gives=True)
def a_ring_sold_as_complete(m: Any) -> None:
    # The server with these two, fewer than the threshold, takes every mask off.
    from secagg.masked.client import MaskedClient
    from secagg.masked.server import MaskedServer

    of_client, of_server = MaskedClient._masks, MaskedServer._masks_shared_with

    def beside(config: Any, one: int, other: int) -> bool:
        n = len(config.clients)
        return config.degree is not None or (config.index(one) - config.index(other)) % n in (1, n - 1)

    def masks(self: Any) -> Any:
        own, *others = of_client(self)
        peers = sorted(self._own.shares.keys() - {self.party})
        pairs = zip(peers, others, strict=True)
        return [own, *(mask for peer, mask in pairs if beside(self._config, self.party, peer))]

    def shared(self: Any, dropout: int) -> Any:
        pairs = zip(self._near(dropout, self._kept.survivors), of_server(self, dropout), strict=True)
        return [mask for survivor, mask in pairs if beside(self._config, dropout, survivor)]

    m.setattr(MaskedClient, "_masks", masks)
    m.setattr(MaskedServer, "_masks_shared_with", shared)


@fault("each seed of a client is the hash of the one before it", mode="committee", gives=True)
def seeds_in_a_chain(m: Any) -> None:
    # Whoever holds the first one works out all others: the server needs that helper alone.
    from secagg.committee.client import CommitteeClient

    original = CommitteeClient.start

    def start(self: Any) -> bytes:
        chain = [self._entropy(32)]

        def next_seed(n: int) -> bytes:
            chain.append(hashlib.sha256(chain[-1]).digest())
            return chain[-2][:n]

        self._entropy = next_seed
        return original(self)

    m.setattr(CommitteeClient, "start", start)


@fault("the commitment to a seed is what its mask is drawn from", mode="committee", gives=True)
def commitments_that_are_mask_seeds(m: Any) -> None:
    # One derivation for both: the server reads the seed of each mask's keystream beside the vector.
    from secagg.committee.messages import mask_seed

    for module in ("messages", "client", "adversary"):
        m.setattr(f"secagg.committee.{module}.seed_commitment", mask_seed)


@fault("a box key expands the first two bytes of its secret", mode="committee", gives=True)
def box_keys_of_two_bytes(m: Any) -> None:
    # The public half is known: the server tries 65536 secrets, and opens every helper's boxes.
    from secagg.primitives.boxes import BoxKey

    original = BoxKey.__post_init__

    def expand(self: Any) -> None:
        secret = self.secret
        object.__setattr__(self, "secret", secret[:2])
        original(self)
        object.__setattr__(self, "secret", secret)

    m.setattr(BoxKey, "__post_init__", expand)


@fault("a BFV ciphertext is the scaled message and nothing that hides it", mode="bfv", gives=True)
def ciphertexts_without_randomness(m: Any) -> None:
    # (q m / t, 0) decrypts as any other does; who has no key reads m.
    import importlib

    from secagg.carriers.dither import seal_rounding
    from secagg.carriers.seal import SlotEncryptor, coefficients

    def encrypt(self: Any, values: Any) -> Any:
        parameters, seal = self._parameters, importlib.import_module("tenseal.sealapi")
        message = seal.Plaintext()
        seal.BatchEncoder(self._context.data.seal_context()).encode(values.tolist(), message)
        numbers = coefficients(message, parameters.degree)
        numerators, up = seal_rounding(numbers, parameters)
        scaled = (numbers.astype(object) * parameters.modulus - numerators) // parameters.plain_modulus + up
        residues = np.zeros((2, len(parameters.primes), parameters.degree), dtype=np.uint64)
        for row, prime in zip(residues[0], parameters.primes, strict=True):
            row[:] = (scaled % prime).astype(np.uint64)
        return residues

    m.setattr(SlotEncryptor, "encrypt", encrypt)


@fault("all vectors are added to one cached encryption of zero", mode="ckks", gives=True)
def one_encryption_of_zero(m: Any) -> None:
    # Two clients' ciphertexts differ by their vectors: the server with one colluding client reads all others.
    import importlib

    from secagg.carriers.seal import SlotEncryptor

    original, zeros = SlotEncryptor.encrypt, dict[Any, Any]()

    def encrypt(self: Any, values: Any) -> Any:
        parameters = self._parameters
        if parameters.scheme != "ckks":
            return original(self, values)
        seal, filled = importlib.import_module("tenseal.sealapi"), np.resize(values, parameters.slots)
        message = seal.Plaintext()
        encoder = seal.CKKSEncoder(self._context.data.seal_context())
        encoder.encode(filled.astype(np.float64).tolist(), 2.0**parameters.scale_bits, message)
        if self._context not in zeros:
            zeros[self._context] = original(self, np.zeros(parameters.slots, dtype=np.int64))
        residues, count = zeros[self._context].copy(), message.coeff_count()
        data = np.fromiter(map(message.data, range(count)), dtype=np.uint64, count=count)
        for row, more, prime in zip(residues[0], data.reshape(residues[0].shape), parameters.primes, strict=True):
            row[:] = (row + more) % np.uint64(prime)
        return residues

    m.setattr(SlotEncryptor, "encrypt", encrypt)


@fault("vectors that travel encrypted get no pairwise masks", mode="masked+bfv", gives=True)
def no_pairs_under_ciphertexts(m: Any) -> None:
    # Self-masks are opened in every sum: server and key holder read every vector, without one client's help.
    from secagg.masked.client import MaskedClient
    from secagg.masked.server import MaskedServer

    of_client, of_server = MaskedClient._masks, MaskedServer._masks_shared_with

    def masks(self: Any) -> Any:
        return of_client(self)[:1] if self._config.helpers else of_client(self)

    def shared(self: Any, dropout: int) -> Any:
        return [] if self._config.helpers else of_server(self, dropout)

    m.setattr(MaskedClient, "_masks", masks)
    m.setattr(MaskedServer, "_masks_shared_with", shared)


# Those that weaken something else


@fault("half of the noise of a level is the other half with the other sign", noisy=True)
def antithetic_noise(m: Any) -> None:
    # Each draw has the right law, but the sum of two entries has no noise at all.
    from secagg.dp import noise

    def draw(self: Any, entropy: Any = noise.os_entropy) -> Any:
        drawn = np.zeros(self.size, dtype=np.int64)
        for level, (variance, count) in enumerate(zip(self.variances, self.counts, strict=True), start=1):
            if count:
                half = noise.discrete_gaussian(variance).draw(-(-count // 2), entropy)
                drawn[self.levels == level] = np.concatenate([half, -half])[:count]
        return drawn

    m.setattr(noise.CoordinateNoise, "draw", draw)


@fault("a ledger counts releases of one label once", noisy=True)
def one_label_one_price(m: Any) -> None:
    # Every run's sums are called alike: after the first run nothing costs anything.
    from secagg.dp.accountant import guarantee

    def of_labels(releases: Any, delta: float) -> Any:
        return guarantee(list({release.label: release for release in releases}.values()), delta)

    m.setattr("secagg.dp.ledger.guarantee", of_labels)


@fault("replacing a record is priced as adding one", noisy=True)
def replace_one_at_the_price_of_add(m: Any) -> None:
    # Noise against replace-one is too small by a factor of more than sqrt 2, and the bill says it is enough.
    from dataclasses import replace

    from analytic.sensitivity import RecordSensitivity

    original = RecordSensitivity.rho

    def rho(self: Any, gram_variance: int, cross_variance: int) -> Any:
        return original(replace(self, adjacency="add-remove"), gram_variance, cross_variance)

    m.setattr(RecordSensitivity, "rho", rho)


@fault("the context of a deployment's sum leaves its terms out")
def a_context_without_terms(m: Any) -> None:
    # A server proposes other promises of corruption, place or noise to each site, and their messages still fit.
    from secagg.encoding import length_prefixed

    def prefixed(*parts: bytes) -> bytes:
        return length_prefixed(*(parts[:1] + parts[2:] if parts[0] == b"flower app" else parts))

    m.setattr("federation.site.invitation.length_prefixed", prefixed)


@fault("the end of a session leaves its sealed records in the site's file")
def records_that_stay(m: Any) -> None:
    # Who gets the site's key later opens the secrets of every sum that it was in.
    from federation.site.state import SessionFolder

    def end(self: Any, session: bytes) -> None:
        self.run("INSERT OR REPLACE INTO sessions VALUES (?, ?, NULL)", session, self._now())

    m.setattr(SessionFolder, "end", end)


@fault("a client answers further unmask requests after the first")
def unmasked_twice(m: Any) -> None:
    # A second request that calls survivors dropouts gets the other share of the same client.
    from secagg.masked import states
    from secagg.masked.states import ClientState
    from secagg.wire import MessageType

    again = (MessageType.UNMASK_REQUEST, ClientState.INPUT_SENT, MessageType.UNMASK_SHARES)
    m.setitem(states.SEMI_HONEST_CLIENT, ClientState.INPUT_SENT, again)


@fault("a certificate of survivors counts signatures without verifying them", mode="committee")
def certificates_by_number(m: Any) -> None:
    # A server that invents signatures has two helpers answer for two survivor sets, or proves that a sum failed.
    from secagg.committee.messages import SetCertificate

    def signers(self: Any, config: Any, agreed: bytes) -> list[int]:
        return [party for party in self.signatures if config.is_authenticated and party in config.helpers]

    m.setattr(SetCertificate, "signers", signers)


@fault("what opens a receipt's commitment to the total follows from public bytes")
def an_opening_for_everybody(m: Any) -> None:
    # A client, who is to learn nothing of the total from its receipt, confirms a guess of it.
    from secagg.primitives.derivation import derive_key

    def opening(identity: Any, configuration: bytes) -> bytes:
        return derive_key(identity.public, "opening of a total", configuration)

    m.setattr("secagg.receipts.opening_of", opening)
    m.setattr("secagg.receipted_sum.opening_of", opening)


@fault("the journal compares totals of exactly the same rows alone")
def one_row_more_is_another_table(m: Any) -> None:
    # A table with one row more or less enters a second total, and the difference shows that row.
    from federation.site.journal import Journal

    m.setattr(Journal, "_overlapping", lambda self, subject: [])


@fault("the rank of a total counts what rounding leaves of zero eigenvalues")
def every_rank_is_full(m: Any) -> None:
    # Totals of fewer rows than features, from which rows can be rebuilt, pass the gate.
    m.setattr("federation.release.RANK_TOLERANCE", 0.0)


@fault("weights that are called certified are what LAPACK makes of the system")
def certified_by_lapack(m: Any) -> None:
    # Their last bits are this machine's, and the model says that they are the same everywhere.
    def solved(system: Any, cross: Any, better: Any, *, exponent: int) -> Any:
        return np.ldexp(np.linalg.solve(system.floats(), cross.floats()), exponent)

    m.setattr("analytic.solve.positive_definite", solved)


@fault("verify takes a stored model for that of its totals where the numbers are close")
def close_is_the_same(m: Any) -> None:
    # A model that was changed in all low bits, or a little in each number, verifies.
    def difference(name: str, stored: Any, computed: Any) -> str:
        if computed is None or computed.shape != stored.shape:
            return f"{name}: the totals give no array of {stored.shape} {stored.dtype}"
        return "" if np.allclose(stored, computed) else f"{name}: entries differ"

    m.setattr("federation.totals._difference", difference)


@fault("no party remembers which epoch of a helper it accepted", mode="committee")
def epochs_forgotten(m: Any) -> None:
    # Boxes are sealed to a key of an epoch that a newer one has followed: what was to be erased opens them.
    from secagg.committee.epochs import AcceptedEpochs

    m.setattr(AcceptedEpochs, "_load", lambda self: {})


@fault("BFV messages are rounded to the nearest again", mode="bfv")
def rounded_as_seal_does(m: Any) -> None:
    # The rounding error follows from the vector, and stays in the sum's noise: the key holder confirms a guess.
    def nearest(numerators: Any, modulus: int, entropy: Any) -> Any:
        return (numerators >= modulus - (modulus + 1) // 2).astype(np.int64)

    m.setattr("secagg.carriers.dither.gaussian_rounding", nearest)


@fault("a message's signature covers the first 256 bytes of its payload")
def signed_at_the_beginning(m: Any) -> None:
    # Somebody on the way changes the rest, a vector's entries or the last dropouts, and nobody notices.
    def said(header: Any, *payload: Any) -> tuple[bytes, bytes]:
        return bytes(header), hashlib.sha256(b"".join(map(bytes, payload))[:256]).digest()

    m.setattr("secagg.wire._said", said)
