"""A server that lies to real client and helper sessions, with colluders and the network on its side.

All that it does is a sequence of choices, of which 0 is the honest one or repeats what it told the last party.
Hypothesis draws the others, or ``strategies`` goes through all sequences with a stated number of them. After each play
``Attack.leak`` says what followed from the bytes.
"""

from __future__ import annotations

import hashlib
import sys
from bisect import insort
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from leakage.coalition import Coalition, Heard, Sum, mask_words, opened, reader
from leakage.equations import Combination, Equation, Span, Vector, Words

from secagg import ClientSession, CommitteeSum, InsecureSeededEntropy, Layout, MaskedSum
from secagg import encoder as upload_encoder
from secagg.committee import client as committee_client
from secagg.committee import helper as committee_helper
from secagg.committee.messages import (
    BOX_LABEL,
    SEEDS_LABEL,
    SET_LABEL,
    CommitteeInput,
    MaskSum,
    SeedDelivery,
    SeedEntry,
    SetCertificate,
    box_binding,
    mask_seed,
    seed_commitment,
    set_hash,
)
from secagg.config import SERVER
from secagg.encryption.encrypted import Encrypted
from secagg.encryption.key_holder import agrees_first, write_request
from secagg.errors import MalformedMessageError, SecureSumError
from secagg.masked.bundles import read_bundle, write_bundle
from secagg.masked.messages import (
    AdvertisedKeys,
    Roster,
    ShareDelivery,
    SurvivorProof,
)
from secagg.masked.secrets import seal_binding, sealing_key, sign_peers, sign_survivors
from secagg.masked.series import MaskedSeries
from secagg.primitives.agreement import KeyPair
from secagg.primitives.boxes import BoxKey, seal_box
from secagg.primitives.identity import SIGNATURE_BYTES, IdentityKey
from secagg.primitives.mask_stream import add_masks
from secagg.primitives.sealing import seal
from secagg.primitives.shamir import SHARE_BYTES
from secagg.ring import RingVector
from secagg.sums import FINGERPRINT_BYTES, PartySecrets
from secagg.wire import CARRIES_VECTOR, MessageType, message_type, open_frame, seal_frame, write_parties

LAYOUT = Layout.of([("words", 3, 2**62)])
"""Three entries of eight bytes: masks of other seeds differ, and no combination fits by chance."""

Choose = Callable[[int], int]
"""One of so many; 0 is what an honest server does, or what this one did last."""
Event = tuple[int, bytes | None]
"""In the sum of a number a party begins (None), comes back from its stored session (``CRASH``), or hears a message."""
Session = Callable[[int, bytes | None], Sequence[bytes | None]]
CRASH = b""

START, ROSTER, DELIVERY, REQUEST, PROOF, REQUEST_AGAIN, PROOF_AGAIN = range(7)
SEEDS, SURVIVORS, CERTIFICATE, MASKS = range(4)


def identity_of(party: int) -> IdentityKey:
    """The signing key of a party; the server's is that of party 0."""
    return IdentityKey(bytes([party + 1]) * 32)


def box_key_of(helper: int) -> BoxKey:
    """The key pair of a helper."""
    return BoxKey(bytes([helper + 1]) * 32)


def vector_of(vector: Vector) -> np.ndarray:
    """A client's vector; no combination of a few is that of others."""
    return np.random.default_rng(vector).integers(-(2**56), 2**56, LAYOUT.size)


# Honest parties: real sessions


@dataclass(frozen=True)
class Answer:
    """What a party said to one event, and each mask that it added meanwhile, with its sign."""

    messages: tuple[bytes, ...]
    masks: tuple[tuple[bytes, int], ...]


class Honest:
    """A party whose answers follow from what it was told: it is asked anew only where that is new."""

    def __init__(self, make: Callable[[], Session]) -> None:
        self._make, self._live = make, make()
        self._lived: tuple[Event, ...] = ()
        self._memory: dict[tuple[Event, ...], Answer] = {}

    def answer(self, told: tuple[Event, ...]) -> Answer:
        """To the last of these events; nothing where it refuses."""
        if told not in self._memory:
            if self._lived != told[:-1]:
                self._live = self._make()
                for event in told[:-1]:
                    _ask(self._live, event)
            with _watched() as masks:
                messages = _ask(self._live, told[-1])
            self._lived = told
            self._memory[told] = Answer(messages, tuple(masks))
        return self._memory[told]


def _ask(session: Session, event: Event) -> tuple[bytes, ...]:
    try:
        return tuple(message for message in session(*event) if message is not None)
    except SecureSumError:
        return ()


@contextmanager
def _watched() -> Iterator[list[tuple[bytes, int]]]:
    """The masks that parties really add, whatever they should add: that is how equations get their terms."""
    seen: list[tuple[bytes, int]] = []
    with pytest.MonkeyPatch.context() as patch:
        for module in (upload_encoder, committee_client, committee_helper):

            def mask(layout, vector, masks, digest, *, really=module.masked_pieces):  # type: ignore[no-untyped-def]
                seen.extend((mask_words(seed, digest, layout), sign) for seed, sign in masks)
                return really(layout, vector, masks, digest)

            patch.setattr(module, "masked_pieces", mask)

        def add(vector: RingVector, masks: Sequence[tuple[bytes, int]], digest: bytes) -> None:
            seen.extend((mask_words(seed, digest, vector.layout), sign) for seed, sign in masks)
            add_masks(vector, masks, digest)

        patch.setattr(sys.modules[Encrypted.__module__], "add_masks", add)
        yield seen


def sessions_of(make: Callable[[int, str], ClientSession]) -> Session:
    """A party's sessions, one a sum; ``make`` takes the sum's number and how often the party crashed."""
    live: dict[int, ClientSession] = {}
    crashes: list[int] = []

    def session(number: int, message: bytes | None) -> Sequence[bytes | None]:
        if message is None:
            live[number] = make(number, "")
            return [live[number].start()]
        if message == CRASH:
            crashes.append(number)
            restarted = make(number, f" after crash {len(crashes)}")
            restarted.restore(live[number].snapshot())
            live[number] = restarted
            return []
        return [live[number].receive(message)]

    return session


def says(bound_to: Any, type_: MessageType, payload: bytes, *, recipient: int, sender: int = SERVER) -> bytes:
    """A message of the server, or of a colluding client, signed where messages are."""
    identity = identity_of(sender) if bound_to.identity_of(sender) else None
    digest = bound_to.digest_of(type_)
    return seal_frame(type_, payload, digest=digest, sender=sender, recipient=recipient, identity=identity)


def series_session(series: MaskedSeries, party: int, secrets: PartySecrets) -> Session:
    """A client of a series; what it is told and says is taken out of bundles."""
    client = series.client(party, secrets=secrets, entropy=InsecureSeededEntropy(1, f"series {party}"))

    def session(number: int, message: bytes | None) -> Sequence[bytes | None]:
        if message is None:
            said = client.begin_sum(LAYOUT, b"", vector_of((party, number))).start()
        elif message == CRASH:
            return []
        else:
            bundle = write_bundle([message])
            said = client.receive(says(series, MessageType.BUNDLE, bundle, recipient=party))
        if not said:
            return []
        frame = open_frame(said, digest=series.digest, sender=party, recipient=SERVER, public=series.identity_of(party))
        return read_bundle(frame, peer=party)

    return session


@dataclass(frozen=True, eq=False)
class Stage:
    """What all plays of a test share: the sums, the honest parties' sessions, who is on the server's side.

    Args:
        sums: public parameters.
        colluders: clients and helpers.
        same_rows: whether a client gives each sum the same vector.
        same_tape: whether it draws the same bytes in each sum, as a machine does that was rolled back.
        series: of which ``sums`` are the first ones.
        may_lie: whether the server lies, or only listens while messages get lost.
        reorders: whether the order of steps, crashes and replays are choices, too.
        decryption: the key holder's secret context, where vectors are encrypted.
    """

    sums: tuple[Sum, ...]
    colluders: frozenset[int] = frozenset()
    same_rows: bool = False
    same_tape: bool = False
    series: MaskedSeries | None = None
    may_lie: bool = True
    reorders: bool = False
    decryption: bytes = b""
    parties: Mapping[int, Honest] = field(init=False)
    memory: dict[object, Any] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        everybody = (*self.sums[0].clients, *self.sums[0].helpers)
        honest = {party: Honest(self._maker(party)) for party in everybody if party not in self.colluders}
        object.__setattr__(self, "parties", honest)

    @property
    def clients(self) -> list[int]:
        """The honest ones."""
        return [party for party in self.sums[0].clients if party not in self.colluders]

    @property
    def promised(self) -> int:
        """In how many honest clients' company each honest vector stays at least."""
        colluding = len(self.colluders.intersection(self.sums[0].clients))
        return min(config.guarantee.min_survivors for config in self.sums) - colluding

    def vector(self, number: int, party: int) -> Vector:
        """What a client gives a sum."""
        return party, 0 if self.same_rows else number

    def once(self, what: object, make: Callable[[], Any]) -> Any:
        """What ``make`` gives, worked out once for all plays."""
        if what not in self.memory:
            self.memory[what] = make()
        return self.memory[what]

    def secrets(self, party: int) -> PartySecrets:
        """What a party knows for long."""
        if party in self.sums[0].helpers:
            identity = identity_of(party) if self.sums[0].is_authenticated else None
            return PartySecrets(boxes=box_key_of(party), identity=identity, decryption=self.decryption)
        return PartySecrets(identity=identity_of(party) if self.sums[0].is_authenticated else None)

    def _maker(self, party: int) -> Callable[[], Session]:
        def made(number: int, crashed: str) -> ClientSession:
            config, secrets = self.sums[number], self.secrets(party)
            if party in config.helpers:
                return config.helper(party, secrets=secrets)
            tape = InsecureSeededEntropy(0 if self.same_tape else number, f"{party}{crashed}")
            return config.client(party, vector_of(self.vector(number, party)), secrets=secrets, entropy=tape)

        if self.series is None:
            return lambda: sessions_of(made)
        series = self.series
        return lambda: series_session(series, party, self.secrets(party))


# The server


@dataclass(frozen=True)
class Seen:
    """Words that somebody could read, and of which vectors and masks they are the sum."""

    vectors: tuple[Vector, ...]
    masks: tuple[tuple[bytes, int], ...]
    words: Words

    @property
    def is_true(self) -> bool:
        """Whether they are."""
        true = np.zeros(LAYOUT.size, np.uint64)
        for vector in self.vectors:
            true = true + vector_of(vector).astype(np.uint64)
        for mask, sign in self.masks:
            true = true + np.frombuffer(mask, np.uint64) * np.uint64(sign % 2**64)
        return bool((self.words == true).all())


class Attack:
    """One play; ``Unmasked``, ``Masked`` and ``Committee`` say what can be chosen."""

    def __init__(self, stage: Stage, choose: Choose) -> None:
        self.stage, self.choose = stage, choose
        self._told: dict[int, tuple[Event, ...]] = defaultdict(tuple)
        self._wire: list[tuple[int, bytes]] = []
        self._heard = [Heard(config) for config in stage.sums]
        self._said: dict[tuple[int, int, MessageType], bytes] = {}
        self._seen: list[Seen] = []
        self._locked: dict[tuple[int, int], tuple[bytes, Seen]] = {}
        """Ciphertexts that only the key holder opens, and what is in them."""
        self._keys = [box_key_of(party) for party in stage.sums[0].helpers if party in stage.colluders]
        self._seeds: set[bytes] = set()
        self.say_failed: set[int] = set()
        """The sums that a key holder certified to have failed."""

    def tell(self, number: int, party: int, event: bytes | None, *, is_repeated: bool = False) -> tuple[bytes, ...]:
        """Give an honest party a message, and take down all that it says."""
        self._told[party] += ((number, event),)
        if event and not is_repeated:
            self._wire.append((number, event))
            self._heard[number].take(event, sender=SERVER, recipient=party)
        answer = self.stage.parties[party].answer(self._told[party])
        for message in answer.messages:
            self._take(party, message, answer.masks)
        return answer.messages

    def _take(self, party: int, message: bytes, masks: tuple[tuple[bytes, int], ...]) -> None:
        number = next((k for k, config in enumerate(self.stage.sums) if _belongs(config, message, party)), None)
        if number is None:  # the set-up of a sum of the series that nobody begins
            return
        config, type_ = self.stage.sums[number], message_type(message)
        assert type_ is not None
        self._said[number, party, type_] = message
        self._heard[number].take(message, sender=party, recipient=SERVER)
        if type_ in CARRIES_VECTOR or type_ is MessageType.MASK_SUM:
            vectors = (self.stage.vector(number, party),) if type_ in CARRIES_VECTOR else ()
            sums = self._sums(config, message, party)
            for place, words in enumerate(sums):  # of a helper's sums each has as many masks as the others
                each = len(masks) // len(sums)
                seen = Seen(vectors, masks[place * each :][:each], words)
                assert seen.is_true, "what was sent is the vector and the masks that were seen to be added"
                if isinstance(_encoder(config), Encrypted) and not self.stage.colluders.intersection(config.helpers):
                    self._locked[number, party] = _payload(config, message, party), seen
                elif all((before.vectors, before.masks) != (seen.vectors, seen.masks) for before in self._seen):
                    self._seen.append(seen)

    def _sums(self, config: Sum, message: bytes, party: int) -> list[Words]:
        """The words in a message: whoever knows everything reads them, and not the coalition."""
        encoder = _encoder(config)
        if not isinstance(encoder, Encrypted):
            return _sums(config, message, party)
        assert not isinstance(config, CommitteeSum)
        payload = _payload(config, message, party)
        words = encoder.cipher(config).decrypt(payload, self.stage.decryption).vector.to_bytes()
        return [np.frombuffer(words, np.uint64)]

    def ask_holder(self, number: int, arrived: Callable[[int], bool]) -> None:
        """Have an honest key holder decrypt a sum of what arrived, or of what the server likes, once or twice."""
        config = self.stage.sums[number]
        encoder = _encoder(config)
        if not isinstance(encoder, Encrypted) or encoder.key_holder in self.stage.colluders:
            return
        assert not isinstance(config, CommitteeSum)
        holder = encoder.key_holder
        self.tell(number, holder, None)
        for _ in range(1 + self.stage.may_lie):
            self._ask_to_agree(config, number, holder)
            chosen = [at for at in self._locked if at[0] == number and arrived(at[1])]
            if self.stage.may_lie:
                kept = [at for at in chosen if not self.choose(2)]
                chosen = kept + [at for at in self._locked if at not in chosen and self.choose(2)]
            encrypted_sum = encoder.cipher(config).empty_sum()
            for at in chosen:
                encrypted_sum.add(self._locked[at][0], peer=at[1])
            claimed = config.clients if self.stage.may_lie else sorted(party for _, party in chosen)
            request = write_request(claimed, encrypted_sum.to_bytes())
            for answer in self.tell(
                number, holder, says(config, MessageType.DECRYPTION_REQUEST, request, recipient=holder)
            ):
                parts = [self._locked[at][1] for at in chosen]
                masks = tuple(mask for part in parts for mask in part.masks)
                words = np.frombuffer(_payload(config, answer, holder), np.uint64)
                seen = Seen(tuple(vector for part in parts for vector in part.vectors), masks, words)
                assert seen.is_true, "what was decrypted is the sum of what was in the ciphertexts"
                self._seen.append(seen)
        self._ask_to_agree(config, number, holder)

    def _ask_to_agree(self, config: Sum, number: int, holder: int) -> None:
        """Have a key holder that agrees first agree to all clients, or certify that there is no total; or neither."""
        if not self.stage.may_lie or isinstance(config, CommitteeSum) or not agrees_first(config):
            return
        for survivors in ((), ((),), (config.clients,))[self.choose(3)]:
            asked = says(config, MessageType.SURVIVOR_SET, write_parties(survivors), recipient=holder)
            if self.tell(number, holder, asked) and not survivors:
                self.say_failed.add(number)

    def disturb(self, number: int, party: int) -> None:
        """Have a party crash and come back, or repeat to it what anybody was told in any sum."""
        has_begun = (number, None) in self._told[party]
        what = self.choose(3) if self.stage.reorders and has_begun else 0
        if what == 1:
            self.tell(number, party, CRASH)
        if what == 2 and self._wire:
            _, message = self._wire[self.choose(len(self._wire))]
            self.tell(number, party, message, is_repeated=True)

    def span(self) -> Span:
        """All that follows from the bytes: what the coalition can expand is taken off, what it cannot is unknown."""
        known = Coalition(self._keys, self._seeds, self._heard, self.stage.once).known_masks()
        equations = []
        for seen in self._seen:
            words = seen.words
            left: dict[bytes, int] = defaultdict(int)
            for mask, sign in seen.masks:
                if mask in known:
                    words = words - np.frombuffer(mask, np.uint64) * np.uint64(sign % 2**64)
                else:
                    left[mask] += sign
            equations.append(Equation(dict.fromkeys(seen.vectors, 1), left, words))
        return Span(equations)

    def leak(self) -> Combination | None:
        """A combination of fewer honest clients' vectors than promised that follows; None if none does."""
        span = self.span()
        found = span.of_at_most(self.stage.promised - 1)
        for combination in (*span.combinations(), *([found] if found else [])):
            really = sum(
                (vector_of(v).astype(np.uint64) * np.uint64(c % 2**64) for v, c in combination.vectors.items()),
                start=np.zeros(LAYOUT.size, np.uint64),
            )
            assert (combination.words == really).all(), "what follows from the equations is what the vectors say"
        return found


class Unmasked(Attack):
    """Vectors that only encryption hides."""

    def play(self) -> None:
        """Collect vectors, some of which get lost, and have them decrypted."""
        for number in range(len(self.stage.sums)):
            came = [party for party in self.stage.clients if not self.choose(2) and self.tell(number, party, None)]
            self.ask_holder(number, came.__contains__)


class Certified(Unmasked):
    """Encrypted sums whose key holder may certify at any moment that one failed: then nothing of it may ever follow.

    What a lying server has decrypted of the others is no secret without masks, and not looked for.
    """

    def leak(self) -> Combination | None:
        """Any combination, the total too, with a vector of a sum that was certified to have failed."""
        failed = self.say_failed
        return next((c for c in self.span().combinations() if failed & {number for _, number in c.vectors}), None)


class Masked(Attack):
    """Rosters, deliveries, requests and proofs of masked sums, to each client its own."""

    def __init__(self, stage: Stage, choose: Choose) -> None:
        Attack.__init__(self, stage, choose)
        self._counted: dict[tuple[int, int], set[int]] = defaultdict(set)
        self._rosters: dict[tuple[int, int], dict[int, AdvertisedKeys]] = {}
        self._forged: dict[AdvertisedKeys, KeyPair] = {}  # the pair to seal with
        self._dropouts: dict[int, frozenset[int]] = {}
        self._asked: dict[tuple[int, int], frozenset[int]] = {}
        self._signed: dict[tuple[int, frozenset[int]], dict[int, bytes]] = defaultdict(dict)
        self._absent: dict[tuple[int, int], list[int]] = {}
        self._asks_again = 0

    def play(self) -> None:
        """Lead every client through every sum, as far as it goes."""
        waiting = [(number, START, party) for number in range(len(self.stage.sums)) for party in self.stage.clients]
        while waiting:
            number, step, party = waiting.pop(self.choose(len(waiting)) if self.stage.reorders else 0)
            self.disturb(number, party)
            following = self._step(number, step, party)
            if following is not None:
                insort(waiting, (number, following, party))
        for number in range(len(self.stage.sums)):
            self.ask_holder(number, self._counted[number, DELIVERY].__contains__)

    def _step(self, number: int, step: int, party: int) -> int | None:
        """Where the client stands after a step of its sum; None where it is left, refuses or is done."""
        is_set_up_ahead = self.stage.series is not None and number > 0
        if step == START:
            if not is_set_up_ahead:
                self.tell(number, party, None)
            if (number, party, MessageType.ADVERTISED_KEYS) not in self._said:
                return None
        else:
            if is_set_up_ahead and step == DELIVERY:
                self.tell(number, party, None)
            message = self._message(number, step, party)
            if message is None or not self.tell(number, party, message):
                return None
        if self.stage.sums[number].is_authenticated and step in (REQUEST, REQUEST_AGAIN):
            self._take_signature(number, party)
        elif step >= REQUEST:
            return self._again(step)
        if self.choose(2):
            return None
        self._counted[number, step].add(party)
        return step + 1

    def _again(self, step: int) -> int | None:
        """Ask a client that is done once more; who does so with one does so with the next."""
        if not self.stage.may_lie or step > PROOF:
            return None
        self._asks_again ^= self.choose(2)
        return REQUEST_AGAIN if self._asks_again else None

    def _message(self, number: int, step: int, party: int) -> bytes | None:
        type_, make = {
            ROSTER: (MessageType.ROSTER, self._roster),
            DELIVERY: (MessageType.SHARE_DELIVERY, self._delivery),
            REQUEST: (MessageType.UNMASK_REQUEST, self._request),
            PROOF: (MessageType.SURVIVOR_PROOF, self._proof),
        }[step - 2 if step > PROOF else step]
        payload, config = make(number, party), self._config(number)
        if payload is None:
            return None
        return says(config, type_, payload, recipient=party)

    def _roster(self, number: int, party: int) -> bytes:
        """For each neighbour its keys, another sum's, keys of the server's own making, or none."""
        chosen = {}
        for peer in self._config(number).neighbours(party):
            offers = self._offers(number, peer)
            if offers:
                offer = [*offers, None][self.choose(len(offers) + 1) if self.stage.may_lie else 0]
                if offer is not None:
                    chosen[peer] = offer
        self._rosters[number, party] = chosen
        return Roster(keys=chosen).to_payload()

    def _offers(self, number: int, peer: int) -> list[AdvertisedKeys]:
        if peer in self.stage.colluders:
            return [self._made_up(number, peer, variant) for variant in range(1 + self.stage.may_lie)]
        if not self.stage.may_lie:
            return [self._advertised(number, peer)] if peer in self._counted[number, START] else []
        sums = [number, *(other for other in range(len(self.stage.sums)) if other != number)]
        heard = [self._advertised(k, peer) for k in sums if (k, peer, MessageType.ADVERTISED_KEYS) in self._said]
        return [*heard, self._made_up(number, peer, 0)]

    def _advertised(self, number: int, peer: int) -> AdvertisedKeys:
        (keys,) = self._heard[number].keys[peer]
        return keys

    def _made_up(self, number: int, peer: int, variant: int) -> AdvertisedKeys:
        """Keys of the server's side in the name of a client, signed where it has that client's signing key."""
        keys, pairs = self.stage.once((number, peer, variant), lambda: self._new_keys(number, peer, variant))
        self._forged[keys] = pairs[0]
        self._keys += pairs
        return keys

    def _new_keys(self, number: int, peer: int, variant: int) -> tuple[AdvertisedKeys, tuple[KeyPair, KeyPair]]:
        config, entropy = self._config(number), InsecureSeededEntropy(2, repr((number, peer, variant)))
        sealing, masking = pairs = (KeyPair.generate(entropy), KeyPair.generate(entropy))
        keys = AdvertisedKeys(sealing_key=sealing.public, masking_key=masking.public)
        signature = bytes(SIGNATURE_BYTES if config.is_authenticated else 0)
        if config.is_authenticated and peer in self.stage.colluders:
            said = says(config, MessageType.ADVERTISED_KEYS, keys.to_payload(), recipient=SERVER, sender=peer)
            signature = said[-SIGNATURE_BYTES:]
        return replace(keys, signature=signature), pairs

    def _delivery(self, number: int, party: int) -> bytes:
        """From each peer on the roster its box, one of another sum, or none; the server seals for its own side."""
        chosen = {}
        for peer, keys in self._rosters[number, party].items():
            boxes = self._boxes(number, party, peer, keys)
            if boxes:
                box = [*boxes, None][self.choose(len(boxes) + 1) if self.stage.may_lie else 0]
                if box is not None:
                    chosen[peer] = box
        absent = self._said_absent(number, party, set(chosen)) if self._config(number).signs_peers else None
        return ShareDelivery(sealed=chosen, absent=absent).to_payload()

    def _said_absent(self, number: int, party: int, came: set[int]) -> tuple[int, ...]:
        """Who shared nothing, with the neighbours whose boxes were withheld; or as it is for others."""
        config = self._config(number)
        shared = {sender for sender, _ in self._heard[number].shared} | self.stage.colluders
        if not self.stage.may_lie:
            shared = self._counted[number, ROSTER] | self.stage.colluders
        elif not self.choose(2):
            shared = (shared | came) - (set(config.neighbours(party)) - came)
        self._absent[number, party] = sorted(set(config.clients) - shared - {party})
        return tuple(self._absent[number, party])

    def _boxes(self, number: int, party: int, peer: int, keys: AdvertisedKeys) -> list[bytes]:
        if keys in self._forged:
            setup, own = self._config(number).setup_digest, self._advertised(number, party)
            key = sealing_key(self._forged[keys], own.sealing_key, setup, peer, party)
            binding = seal_binding(setup, peer, party, keys.masking_key, own.masking_key)
            return [seal(key, bytes(2 * SHARE_BYTES), binding, entropy=InsecureSeededEntropy(3))]
        if not self.stage.may_lie and peer not in self._counted[number, ROSTER]:
            return []
        sums = [number, *(other for other in range(len(self.stage.sums)) if other != number)]
        shared = [said for k in sums for sender, said in self._heard[k].shared if sender == peer]
        return [said.sealed[party] for said in shared if party in said.sealed]

    def _request(self, number: int, party: int) -> bytes | None:
        """The dropouts that the last client was told, but for those that this one is told otherwise of."""
        config = self._config(number)
        if number not in self._dropouts:
            self._dropouts[number] = frozenset(set(self.stage.clients) - self._counted[number, DELIVERY])
        dropouts = self._dropouts[number]
        if party in dropouts:
            if not self.stage.may_lie or not self.choose(2):
                return None
            dropouts -= {party}
        if self.stage.may_lie:
            dropouts ^= {peer for peer in config.clients if peer != party and self.choose(2)}
        self._dropouts[number] = self._asked[number, party] = dropouts
        return write_parties(tuple(sorted(dropouts)))

    def _take_signature(self, number: int, party: int) -> None:
        message = self._said[number, party, MessageType.SURVIVOR_SIGNATURE]
        frame = opened(self._config(number), message, sender=party, recipient=SERVER)
        signature = reader(frame, party).only(SIGNATURE_BYTES)
        self._signed[number, self._asked[number, party]][party] = signature

    def _proof(self, number: int, party: int) -> bytes:
        """All signatures on what this client was told; colluders sign everything. Or others' on other sets, too."""
        dropouts, digest = self._asked[number, party], self._config(number).digest
        colluding = self.stage.colluders.intersection(self._config(number).clients) - dropouts
        signatures = {peer: self._colluder_signs(peer, dropouts, digest) for peer in colluding}
        if self.stage.may_lie and self.choose(2):
            for (k, _), signed in self._signed.items():
                signatures |= signed if k == number else {}
        signatures |= self._signed[number, dropouts]
        peers = self._signed_peers(number, party) if self._config(number).signs_peers else None
        return SurvivorProof(signatures=signatures, peers=peers).to_payload()

    def _signed_peers(self, number: int, party: int) -> dict[int, bytes]:
        """What each surviving neighbour signed; colluders sign what this client was told."""
        config, signed = self._config(number), {}
        for peer in set(config.neighbours(party)) - self._asked[number, party]:
            said = self._said.get((number, peer, MessageType.MASKED_INPUT))
            if peer in self.stage.colluders:
                said_by = identity_of(peer), tuple(self._absent[number, party]), config.digest
                signed[peer] = self.stage.once(("peers", peer, *said_by[1:]), partial(sign_peers, *said_by))
            elif said is not None:
                signed[peer] = opened(config, said, sender=peer, recipient=SERVER).payload.tobytes()[:SIGNATURE_BYTES]
        return signed

    def _colluder_signs(self, peer: int, dropouts: frozenset[int], digest: bytes) -> bytes:
        key = (peer, dropouts, digest)
        signed: bytes = self.stage.once(key, lambda: sign_survivors(identity_of(peer), dropouts, digest))
        return signed

    def _config(self, number: int) -> MaskedSum:
        config = self.stage.sums[number]
        assert isinstance(config, MaskedSum)
        return config


class Committee(Attack):
    """To each helper its own seeds, survivors and certificate, of whatever origin; colluding helpers sign anything.

    Before any of these it may have helpers certify that the sum failed: then nothing of that sum may ever follow.
    """

    def __init__(self, stage: Stage, choose: Choose) -> None:
        Attack.__init__(self, stage, choose)
        self._last: dict[tuple[int, int], int] = defaultdict(int)
        self._told_of: dict[tuple[int, int], dict[int, bytes]] = {}
        self._left_out: dict[int, frozenset[int]] = defaultdict(frozenset)
        self._fixed: dict[tuple[int, int], frozenset[int]] = {}
        self._signed: dict[tuple[int, bytes], dict[int, bytes]] = defaultdict(dict)
        self._answered_for: dict[tuple[int, int], frozenset[int]] = {}
        self._again: set[tuple[int, int, int]] = set()
        self._asks_whether_failed = False
        self._say_failed: dict[int, set[int]] = defaultdict(set)

    def leak(self) -> Combination | None:
        """As for every mode; or any combination, the total too, with a vector of a sum certified to have failed."""
        colluding = self.stage.colluders.intersection(self.stage.sums[0].helpers)
        over = {
            number
            for number, helpers in self._say_failed.items()
            if len(helpers | colluding) >= self._config(number).seed_sharing.quorum
        }
        found = Attack.leak(self)
        if found is None and over:
            return next((c for c in self.span().combinations() if over & {number for _, number in c.vectors}), None)
        return found

    def play(self) -> None:
        """Collect vectors, then lead each honest helper through its steps."""
        for number in range(len(self.stage.sums)):
            for party in self.stage.clients:
                if not self.choose(2):
                    self.tell(number, party, None)
        waiting = [
            (number, SEEDS, helper)
            for number, config in enumerate(self.stage.sums)
            for helper in config.helpers
            if helper not in self.stage.colluders
        ]
        while waiting:
            number, step, helper = waiting.pop(self.choose(len(waiting)) if self.stage.reorders else 0)
            if (number, None) not in self._told[helper]:
                self.tell(number, helper, None)
            self.disturb(number, helper)
            self._ask_whether_it_failed(number, step, helper)
            answers = self.tell(number, helper, self._request(number, step, helper))
            if answers and step == SURVIVORS:
                self._take_signature(number, helper, answers[0])
            following = self._following(number, step, helper, bool(answers))
            if following is not None:
                insort(waiting, (number, following, helper))

    def _ask_whether_it_failed(self, number: int, step: int, helper: int) -> None:
        """From some helper's first step on every helper before each of its steps."""
        config = self._config(number)
        if self.stage.may_lie and config.is_authenticated and step == SEEDS:
            self._asks_whether_failed ^= bool(self.choose(2))
        if self._asks_whether_failed:
            nobody = write_parties(())
            if self.tell(number, helper, says(config, MessageType.SURVIVOR_SET, nobody, recipient=helper)):
                self._say_failed[number].add(helper)

    def _following(self, number: int, step: int, helper: int, has_answered: bool) -> int | None:
        """The next step; a liar tries once more where it was refused, and begins with other survivors at the end."""
        first = SURVIVORS if self.stage.sums[number].is_authenticated else CERTIFICATE
        if has_answered and step < MASKS:
            return step + 1 if step != SEEDS else first
        tried = (number, step, helper)
        if not self.stage.may_lie or tried in self._again or not self.choose(2):
            return None
        self._again.add(tried)
        return first if has_answered else step

    def _request(self, number: int, step: int, helper: int) -> bytes:
        type_, make = {
            SEEDS: (MessageType.SEED_DELIVERY, self._seeds_for),
            SURVIVORS: (MessageType.SURVIVOR_SET, lambda *of: write_parties(self._survivors_for(*of))),
            CERTIFICATE: (MessageType.SET_CERTIFICATE, self._certificate),
            MASKS: (MessageType.MASK_REQUEST, self._masks),
        }[step]
        content: Any = make(number, helper)
        payload = content if isinstance(content, bytes) else content.to_payload()
        return says(self.stage.sums[number], type_, payload, recipient=helper)

    def _seeds_for(self, number: int, helper: int) -> SeedDelivery:
        config, entries = self._config(number), {}
        for party in config.clients:
            offers = [*self._offers(config, number, helper, party), None]
            self._last[number, party] = pick = (self._last[number, party] + self.choose(len(offers))) % len(offers)
            offer = offers[pick]
            if offer is not None:
                entries[party] = offer
        said = {
            party: hashlib.sha256(entry.statement(config.digest, party)).digest() for party, entry in entries.items()
        }
        self._told_of[number, helper] = said
        return SeedDelivery(entries=entries)

    def _offers(self, config: CommitteeSum, number: int, helper: int, party: int) -> list[SeedEntry]:
        """A client's own seeds, some that the server made up, the same client's of another sum, and somebody else's."""
        uploads = {(k, client): said for k, heard in enumerate(self._heard) for client, said in heard.inputs}
        own = [uploads.pop((number, party))] if (number, party) in uploads else []
        if not self.stage.may_lie:
            offers = own or ([self._made_up(config, party)] if party in self.stage.colluders else [])
        else:
            others = [self._resigned(config, party, said) for said in uploads.values()]
            offers = [*own, self._made_up(config, party), *others]
        return [offer.entry(helper) for offer in offers]

    def _made_up(self, config: CommitteeSum, party: int) -> CommitteeInput:
        upload, seeds = self.stage.once((config.digest, party), lambda: self._new_seeds(config, party))
        self._seeds |= seeds
        return upload

    def _new_seeds(self, config: CommitteeSum, party: int) -> tuple[CommitteeInput, set[bytes]]:
        entropy = InsecureSeededEntropy(4, repr((config.session_id, party)))
        seeds = [entropy(32) for _ in config.seed_sharing.sets]
        boxes = {}
        for helper in config.helpers:
            own = b"".join(seeds[place] for place in config.seed_sharing.sets_of(helper)) + bytes(FINGERPRINT_BYTES)
            binding = box_binding(config.digest, party, helper)
            boxes[helper] = seal_box(config.helper_key(helper), own, BOX_LABEL, binding)
        commitments = b"".join(seed_commitment(config.digest, party, i, seed) for i, seed in enumerate(seeds))
        upload = CommitteeInput(boxes=boxes, commitments=commitments, signature=b"", vector=b"")
        masks = {mask_seed(config.digest, party, i, seed) for i, seed in enumerate(seeds)}
        return self._resigned(config, party, upload), masks

    def _resigned(self, config: CommitteeSum, party: int, upload: CommitteeInput) -> CommitteeInput:
        """An upload in the name of a client, signed where the server's side can."""
        if not config.is_authenticated:
            return upload
        signature = upload.signature or bytes(SIGNATURE_BYTES)
        if party in self.stage.colluders:
            entry = upload.entry(config.helpers[0])
            said = (config.digest, party.to_bytes(4, "big"), entry.commitments, entry.box_hashes)
            signature = self.stage.once(("signed", *said), lambda: identity_of(party).sign(SEEDS_LABEL, *said))
        return replace(upload, signature=signature)

    def _survivors_for(self, number: int, helper: int) -> tuple[int, ...]:
        """Those that the last helper was told, but for those that this one is told otherwise of."""
        known = self._told_of[number, helper]
        if self.stage.may_lie:
            self._left_out[number] ^= {party for party in known if self.choose(2)}
        survivors = tuple(party for party in known if party not in self._left_out[number])
        self._fixed[number, helper] = frozenset(survivors)
        return survivors

    def _take_signature(self, number: int, helper: int, message: bytes) -> None:
        config = self._config(number)
        signature = reader(opened(config, message, sender=helper, recipient=SERVER), helper).only(SIGNATURE_BYTES)
        said = self._told_of[number, helper]
        agreed = set_hash(config.digest, {party: said[party] for party in self._fixed[number, helper]})
        self._signed[number, agreed][helper] = signature
        self._answered_for[number, helper] = self._fixed[number, helper]

    def _certificate(self, number: int, helper: int) -> SetCertificate:
        """All signatures on what this helper signed; colluders sign everything. Or others' on other sets, too."""
        config, said = self._config(number), self._told_of[number, helper]
        if not config.is_authenticated:
            return SetCertificate(survivors=self._survivors_for(number, helper), signatures={})
        survivors = self._answered_for[number, helper]
        agreed = set_hash(config.digest, {party: said[party] for party in survivors})
        signatures = {
            peer: self.stage.once((peer, agreed), lambda peer=peer: identity_of(peer).sign(SET_LABEL, agreed))
            for peer in self.stage.colluders.intersection(config.helpers)
        }
        if self.stage.may_lie and self.choose(2):
            for (k, _), signed in self._signed.items():
                signatures |= signed if k == number else {}
        return SetCertificate(survivors=tuple(sorted(survivors)), signatures=signatures | self._signed[number, agreed])

    def _masks(self, number: int, helper: int) -> bytes:
        return write_parties(self._config(number).seed_sharing.sets_of(helper))

    def _config(self, number: int) -> CommitteeSum:
        config = self.stage.sums[number]
        assert isinstance(config, CommitteeSum)
        return config


def _encoder(config: Sum) -> object:
    return None if isinstance(config, CommitteeSum) else config.encoder


def _payload(config: Sum, message: bytes, sender: int) -> bytes:
    """A payload, or the vector in it where a signature stands before it."""
    frame = opened(config, message, sender=sender, recipient=SERVER)
    signs = isinstance(config, MaskedSum) and config.signs_peers and frame.type is MessageType.MASKED_INPUT
    return frame.payload.tobytes()[SIGNATURE_BYTES if signs else 0 :]


def _belongs(config: Sum, message: bytes, sender: int) -> bool:
    try:
        opened(config, message, sender=sender, recipient=SERVER)
    except MalformedMessageError:
        return False
    return True


def _sums(config: Sum, message: bytes, sender: int) -> list[Words]:
    """The words of a message with a vector, or of a helper's answer set by set."""
    frame = opened(config, message, sender=sender, recipient=SERVER)
    read = reader(frame, sender)
    if frame.type is MessageType.MASK_SUM:
        assert isinstance(config, CommitteeSum)
        return [np.frombuffer(words, np.uint64) for words in MaskSum.read(read, config).sums.values()]
    if frame.type is MessageType.COMMITTEE_INPUT:
        assert isinstance(config, CommitteeSum)
        return [np.frombuffer(CommitteeInput.read(read, config).vector, np.uint64)]
    return [np.frombuffer(_payload(config, message, sender), np.uint64)]


def honest(_: int) -> int:
    """The choice of a server that does not lie."""
    return 0


def strategies(play: Callable[[Choose], object], lies: int) -> int:
    """Have the server play every strategy of at most so many lies, each once; how many there were."""
    waiting: list[tuple[int, ...]] = [()]
    n_played = 0
    while waiting:
        begun = waiting.pop()
        made: list[tuple[int, int]] = []

        def choose(among: int, begun: tuple[int, ...] = begun, made: list[tuple[int, int]] = made) -> int:
            chosen = begun[len(made)] if len(made) < len(begun) else 0
            made.append((chosen, among))
            return chosen

        play(choose)
        n_played += 1
        if sum(map(bool, begun)) < lies:
            for place in range(len(begun), len(made)):
                honest_until = (*begun, *(0 for _ in range(place - len(begun))))
                waiting += [(*honest_until, lie) for lie in range(1, made[place][1])]
    return n_played
