"""Masked sums give exactly the integers of plain sums, or say who was missing; and no secret is ever said aloud."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from typing import Any

import numpy as np
import pytest

from secagg import InsecureSeededEntropy, IntVector, Layout, MaskedSum, os_entropy, run_in_memory
from secagg.errors import SecureSumError, TooFewSurvivorsError
from secagg.in_memory import Envelope
from secagg.primitives.shamir import SHARE_BYTES
from secagg.wire import MessageType, message_type

SESSION = bytes(range(16))
LAYOUT = Layout.of([("gram", 5, 2**40), ("cross", 3, 2**20)])
STAGES = ("ADVERTISED_KEYS", "SEALED_SHARES", "MASKED_INPUT", "UNMASK_SHARES")
UPLOADED = 3
"""Messages after which a client is in the sum."""


def cohort(n: int, threshold: int | None = None) -> MaskedSum:
    """A masked sum over clients 1 to n."""
    return MaskedSum(layout=LAYOUT, clients=tuple(range(1, n + 1)), session_id=SESSION, threshold=threshold)


def some_vectors(n: int) -> dict[int, IntVector]:
    """Fixed vectors for n clients."""
    rng = np.random.default_rng(n)
    return {party: rng.integers(-(2**16), 2**16, size=LAYOUT.size) for party in range(1, n + 1)}


@pytest.mark.parametrize("threshold", [4, 5, 7])
@pytest.mark.parametrize("stage", range(4), ids=STAGES)
def test_one_too_few_at_each_stage_releases_nothing(stage: int, threshold: int) -> None:
    """threshold - 1 answers: an error that names the stage, what is needed and what came; one more is enough."""
    n = 7
    vectors, protocol = some_vectors(n), cohort(n, threshold)
    missing = dict.fromkeys(range(1, n - threshold + 2), stage)
    with pytest.raises(TooFewSurvivorsError) as caught:
        run_in_memory(protocol, vectors, dropouts=missing)
    error = caught.value
    assert (error.stage, error.needed, error.came) == (STAGES[stage], threshold, threshold - 1)
    assert f"{STAGES[stage]}: {threshold - 1} of" in str(error)
    assert f"{threshold} are needed; no sum is released" in str(error)

    del missing[1]
    run = run_in_memory(protocol, vectors, dropouts=missing)
    stayed = tuple(vectors) if stage == UPLOADED else tuple(p for p in vectors if p not in missing)
    assert run.result.survivors == stayed
    assert run.result.total.tobytes() == np.sum([vectors[p] for p in stayed], axis=0).tobytes()


def messages_of(protocol: MaskedSum, vectors: Mapping[int, IntVector], **options: Any) -> list[Envelope]:
    """Everything said in a run."""
    sent: list[Envelope] = []
    run_in_memory(protocol, vectors, record=sent.append, **options)
    return sent


def test_a_seed_fixes_every_byte_and_fresh_entropy_none() -> None:
    protocol, vectors = cohort(4), some_vectors(4)
    seeded = [[e.message for e in messages_of(protocol, vectors, entropy=InsecureSeededEntropy(5))] for _ in "ab"]
    assert seeded[0] == seeded[1]
    fresh = [[e.message for e in messages_of(protocol, vectors, entropy=os_entropy)] for _ in "ab"]
    same = [a == b for a, b in zip(*fresh, strict=True) if message_type(a) is not MessageType.UNMASK_REQUEST]
    assert not any(same)


class Recorder:
    """Entropy that remembers what it gave."""

    def __init__(self, seed: int) -> None:
        self._source = InsecureSeededEntropy(seed)
        self.drawn: list[bytes] = []

    def __call__(self, n_bytes: int) -> bytes:
        self.drawn.append(self._source(n_bytes))
        return self.drawn[-1]


def traces(secret: bytes) -> list[str]:
    """How a secret would look in a text: hex, Python bytes, decimal, list of numbers; a third of it is enough."""
    piece = secret[: max(8, len(secret) // 3)]
    return [piece.hex(), repr(piece)[2:-1], str(int.from_bytes(secret, "big"))[:16], str(list(piece))[1:-1]]


def assert_silent(texts: list[str], secrets: list[bytes]) -> None:
    """No text holds a trace of any secret."""
    for secret in secrets:
        for trace in traces(secret):
            assert not any(trace in text for text in texts)


def test_the_search_for_secrets_finds_them() -> None:
    """The twin: a leaky text must be caught in each of the forms."""
    secret = bytes(range(100, 132))
    for leak in (secret.hex(), repr(secret), str(int.from_bytes(secret, "big")), str(list(secret)), f"x{secret!r}y"):
        with pytest.raises(AssertionError):
            assert_silent([leak], [secret])


def ours_within(thing: Any) -> Iterator[Any]:
    """Each object of this package that a thing is or holds, however deep: what a debugger or a log might print."""
    if isinstance(thing, Mapping):
        yield from ours_within(list(thing.values()))
    elif isinstance(thing, list | tuple | set | frozenset):
        for item in thing:
            yield from ours_within(item)
    elif type(thing).__module__.startswith("secagg.") and not isinstance(thing, Enum):
        yield thing
        names = [
            *getattr(thing, "__dict__", ()),
            *(s for c in type(thing).__mro__ for s in getattr(c, "__slots__", ())),
        ]
        yield from ours_within([getattr(thing, name) for name in names])


def test_the_search_within_finds_what_holds_secrets() -> None:
    protocol = cohort(4, 3)
    client = protocol.client(1, some_vectors(4)[1])
    client.start()
    found = {type(one).__name__ for one in ours_within([{1: client}, protocol])}
    assert found >= {"MaskedClient", "ClientSecrets", "KeyPair", "MaskedSum", "Layout"}


def test_no_secret_is_printed_or_sent_in_the_clear() -> None:
    """At every step of a whole run: reprs of all that sessions hold and all messages' bytes hold no drawn secret."""
    entropy = Recorder(11)
    vectors = some_vectors(4)
    protocol = cohort(4, 3)
    clients = {party: protocol.client(party, vectors[party], entropy=entropy) for party in protocol.clients}
    server = protocol.server(entropy=entropy)
    texts: list[str] = []
    wire: list[bytes] = []
    shares: set[bytes] = set()

    def look() -> None:
        pairs = [
            pair for client in clients.values() if client._kept.secrets for pair in client._kept.secrets.shares.values()
        ]
        shares.update(half for pair in pairs for half in (pair[:SHARE_BYTES], pair[SHARE_BYTES:]))
        texts.extend(f"{x!r} {x!s}" for x in ours_within([*clients.values(), server, server.result, protocol]))

    said = {party: client.start() for party, client in clients.items()}
    while True:
        look()
        for party, message in said.items():
            assert message is not None
            wire.append(message)
            server.receive(party, message)
        look()
        requests = server.close_round()
        if not requests:
            break
        wire.extend(requests.values())
        said = {party: clients[party].receive(message) for party, message in requests.items()}
    look()
    secrets = [drawn for drawn in entropy.drawn if len(drawn) >= 32]
    assert len(secrets) >= 4 * (2 + 1 + 2 * (3 - 1))
    assert len(shares) == 2 * 4 * 4
    assert_silent(texts, [*secrets, *shares])
    assert_silent(texts, [vector.tobytes() for vector in vectors.values()])
    assert not any(secret in message for secret in secrets for message in wire)


def test_no_error_holds_a_secret() -> None:
    """One message of each type, changed in one byte at eight places, thrown at fresh sessions: errors stay silent.

    One message alone, so that the run goes on and keeps the refusal: an error that ends it would hide that.
    """
    texts: list[str] = []
    secrets: list[bytes] = []
    for position in (0, 4, 5, 6, 40, 46, 60, -1):
        for victim in MessageType:
            entropy, changed_once = Recorder(13), list[bool]()

            def spoil(
                envelope: Envelope,
                victim: MessageType = victim,
                position: int = position,
                changed_once: list[bool] = changed_once,
            ) -> Envelope:
                is_due = message_type(envelope.message) is victim and not changed_once
                if not is_due or position >= len(envelope.message):
                    return envelope
                changed_once.append(True)
                changed = bytearray(envelope.message)
                changed[position] ^= 1
                return Envelope(sender=envelope.sender, recipient=envelope.recipient, message=bytes(changed))

            error = run_with(spoil, entropy)
            texts += [text for e in error for text in (str(e), repr(e), repr(e.__cause__), repr(e.__dict__))]
            secrets += [drawn for drawn in entropy.drawn if len(drawn) >= 32]
    errors, drawn = out_of_turn()
    texts += map(str, errors)
    secrets += drawn
    assert len(texts) > 100
    assert_silent(list(set(texts)), list(set(secrets)))


def out_of_turn() -> tuple[list[SecureSumError], list[bytes]]:
    """What clients in each state say to each request of a run, and the secrets that they hold."""
    errors: list[SecureSumError] = []
    secrets: list[bytes] = []
    protocol, vectors = cohort(3, 2), some_vectors(3)
    requests = [
        e.message for e in messages_of(protocol, vectors, entropy=InsecureSeededEntropy(14)) if e.recipient == 1
    ]
    for answered in range(-1, len(requests)):
        for request in requests:
            entropy = Recorder(14)
            clients = {party: protocol.client(party, vectors[party], entropy=entropy) for party in protocol.clients}
            client = clients[1]
            if answered >= 0:
                client.start()
            for earlier in requests[: max(answered, 0)]:
                client.receive(earlier)
            try:
                client.receive(request)
            except SecureSumError as error:
                errors.append(error)
            secrets += [drawn for drawn in entropy.drawn if len(drawn) >= 32]
    return errors, secrets


def run_with(change: Callable[[Envelope], Envelope], entropy: Recorder) -> list[SecureSumError]:
    """The errors of a run over a network that changes messages."""

    class Changing:
        def carry(self, envelopes):  # type: ignore[no-untyped-def]
            return map(change, envelopes)

    try:
        run = run_in_memory(cohort(3, 2), some_vectors(3), network=Changing(), entropy=entropy)
    except SecureSumError as error:
        return [error]
    return [error for _, error in run.refused]
