"""Questions about sums: digests, promises, graphs, policies, layouts, receipts, stored sessions, epochs."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from federation.modes import MODES, Mode
from federation.sum_setup import SumSetup
from secagg import (
    Assumptions,
    CommitteeSum,
    FileStore,
    IdentityKey,
    InOneProcess,
    InsecureSeededEntropy,
    Layout,
    MaskedSum,
    PartyId,
    PartySecrets,
    PlainSum,
    Receipt,
    ReceiptedSum,
    SignedBy,
    run_in_memory,
    seed_of_beacon,
)
from secagg.beacon import DrawnGraph, grinding_bits
from secagg.carriers import choose_parameters
from secagg.carriers.dither import gaussian_rounding
from secagg.carriers.encrypted import Encrypted, check_key_holder, fingerprint, pin_context, sign_context
from secagg.carriers.parameters import EncryptionParameters
from secagg.carriers.residues import CiphertextSum, pack, read_ciphertexts
from secagg.committee import SealingKey
from secagg.committee.epochs import AcceptedEpochs, OwnEpochs
from secagg.committee.messages import SET_LABEL, SetCertificate, set_hash
from secagg.committee.replication import Replication, believed
from secagg.config import SERVER, SumConfig
from secagg.differencing import fewest_left
from secagg.dp import CentralNoisySum, CoordinateNoise, DistributedNoise, NoisySum, Release, make_room
from secagg.durable import DurableClient, DurableServer
from secagg.entropy import os_entropy
from secagg.errors import ConfigurationError
from secagg.layout import Segment
from secagg.masked.assumptions import plan
from secagg.masked.expander import expander, is_certified
from secagg.masked.graph import expander_neighbours, fewest_holders, harary_neighbours
from secagg.masked.messages import AdvertisedKeys, Roster
from secagg.masked.series import MaskedSeries
from secagg.policy import ClientPolicy, NoiseDemand
from secagg.primitives import shamir
from secagg.primitives.agreement import KeyPair, check_public_key
from secagg.primitives.boxes import BoxKey, seal_box
from secagg.primitives.derivation import derive_key
from secagg.primitives.identity import is_signed
from secagg.primitives.sealing import open_sealed, seal
from secagg.receipts import check_evidence, commitment, opening_of, quorum, tree_of
from secagg.ring import RingVector
from secagg.wire import MessageType, seal_frame, signed_statement
from simulations.audit.questions import Question
from simulations.audit.questions.changed import changed
from simulations.audit.questions.said import answer

LAYOUT = Layout.of([("counts", 3, 10)])
CLIENTS = (1, 2, 3, 4, 5)
KEYS = {party: IdentityKey(bytes([party + 1]) * 32) for party in range(41)}
BOXES = {party: BoxKey(bytes([party]) * 32) for party in (6, 7, 8, 9)}
SESSION = bytes(range(16))
SIGNERS: dict[str, Any] = {
    "identities": tuple(KEYS[party].public for party in CLIENTS),
    "server_identity": KEYS[SERVER].public,
}
ROSTER = {party: KEYS[party].public for party in CLIENTS}
PLAIN = PlainSum(layout=LAYOUT, clients=CLIENTS, session_id=SESSION, min_survivors=4)
MASKED = MaskedSum(layout=LAYOUT, clients=CLIENTS, session_id=SESSION)
SIGNED = MaskedSum(layout=LAYOUT, clients=CLIENTS, session_id=SESSION, threshold=4, **SIGNERS)
COMMITTEE = CommitteeSum(
    layout=LAYOUT,
    clients=CLIENTS,
    session_id=SESSION,
    helper_keys=tuple((party, BOXES[party].public) for party in (6, 7)),
    min_survivors=4,
)
FOUR = replace(
    COMMITTEE,
    helper_keys=tuple((party, SealingKey.signed(KEYS[party], BOXES[party].public).to_bytes()) for party in BOXES),
    helper_identities=tuple((party, KEYS[party].public) for party in BOXES),
    corrupt_helpers=1,
    **SIGNERS,
)
ALL_FOUR = replace(FOUR, corrupt_helpers=None)
NOISE = CoordinateNoise(levels=np.ones(3, dtype=np.uint8), variances=(900,))
SHARES = DistributedNoise(total=NOISE, promised_survivors=3, colluders=1)
ROOM = make_room(LAYOUT, len(CLIENTS), SHARES)
NOISY = NoisySum(protocol=replace(SIGNED, layout=ROOM), layout=LAYOUT, noise=SHARES)
CENTRAL = CentralNoisySum(protocol=SIGNED, noise=NOISE)
BEACON = bytes(range(32))
FORTY = tuple(range(1, 41))
HALF = Assumptions(corruption=0.1, dropout=0.2)
DRAWN = MaskedSum.planned(
    layout=LAYOUT,
    clients=FORTY,
    session_id=SESSION,
    assumptions=HALF.against_grinding(40),
    graph_seed=seed_of_beacon(BEACON, FORTY),
)
LYING = replace(HALF, malicious_server=True)
SUMS: dict[str, Any] = {
    "plain": PLAIN,
    "masked": MASKED,
    "masked, signed": SIGNED,
    "masked, drawn": DRAWN,
    "committee": COMMITTEE,
    "committee of four, signed": FOUR,
    "committee of four, all": ALL_FOUR,
    "masked, noise": NOISY,
    "masked, a server's noise": CENTRAL,
    **{f"masked, receipts of {by.value}": ReceiptedSum(protocol=SIGNED, signed_by=by) for by in list(SignedBy)[:2]},
    "committee, receipts of helpers": ReceiptedSum(protocol=FOUR, signed_by=SignedBy.HELPERS),
    "committee, receipts of all helpers": ReceiptedSum(protocol=ALL_FOUR, signed_by=SignedBy.HELPERS),
}


def numbers_of(text: str) -> list[str]:
    """Return what a text says in numbers, however it is worded."""
    return re.findall(r"\d[\d.,]*", text)


def about_sums() -> Iterator[Question]:
    """Return all of them."""
    yield from _digests()
    yield from _promises()
    yield from _graphs()
    yield from _policies()
    yield from _configurations()
    yield from _layouts()
    yield from _primitives()
    yield from _receipts()
    yield from _stored()
    yield from _epochs()
    yield from _encrypted()
    yield from _differences()


def _digests() -> Iterator[Question]:
    """A digest depends on all that parties agree on; of_values changes each part of the other sums."""
    agreed: dict[str, Any] = {"layout": LAYOUT, "clients": CLIENTS, "session_id": SESSION, "context": b"model"}
    yield from changed("plain sum", lambda **own: PlainSum(**own).digest, **agreed, min_survivors=4, **SIGNERS)
    yield "digest of committee, corrupt", lambda: replace(COMMITTEE, corrupt_helpers=0).digest
    yield "digest of committee, one helper", lambda: replace(COMMITTEE, helper_keys=COMMITTEE.helper_keys[:1]).digest
    series = MaskedSeries(clients=CLIENTS, series_id=SESSION)
    yield "digest of series", lambda: series.digest
    for number in range(3):
        yield f"digest of sum {number} of a series", lambda n=number: series.sum(n, LAYOUT, b"").digest
        yield (
            f"set-up digest of sum {number} of a series",
            lambda n=number: series.sum(n, LAYOUT, b"").setup_digest,
        )
    yield "digest of a series' other context", lambda: series.sum(1, LAYOUT, b"other").digest
    yield "digest of another graph", lambda: replace(DRAWN, graph_seed=bytes(32)).digest
    yield "digest of another threshold", lambda: replace(DRAWN, threshold=(DRAWN.threshold or 0) + 1).digest
    yield "digest of noise", lambda: (NOISE.digest, SHARES.digest, replace(SHARES, colluders=0).digest)


def _promises() -> Iterator[Question]:
    """What each sum promises, costs and says of itself."""
    for n in (3, 4, 7, 20):
        clients = tuple(range(1, n + 1))
        signers = tuple(IdentityKey(bytes([party]) * 32).public for party in (99, *clients))
        signed = {"identities": signers[1:], "server_identity": signers[0]}
        for kind, more in (("", {}), (", signed", signed)):
            yield (
                f"promise to {n} clients{kind}",
                lambda clients=clients, more=more: (
                    MaskedSum(layout=LAYOUT, clients=clients, session_id=SESSION, **more).guarantee
                ),
            )
    for parties, corrupt in ((2, 1), (3, 1), (4, 1), (5, 2), (5, 4), (7, 2)):
        own = Replication(helpers=tuple(range(1, parties + 1)), corrupt=corrupt)
        yield (
            f"committee of {parties}, {corrupt} corrupt",
            lambda own=own: (
                own.sets,
                own.n_seeds,
                own.seeds_of_one,
                own.held_by(1),
                own.quorum,
                own.vouchers,
                own.needed(signing=True),
                own.needed(signing=False),
            ),
        )
        votes = {party: bytes([party % 2]) for party in own.helpers}
        yield f"agreed among {parties}, {corrupt} corrupt", lambda own=own, votes=votes: own.agreed(votes)
    complaints = {6: (1, 2, 3, 4), 7: (1,), 8: (1, 3), 9: ()}
    for corrupt in (0, 1, 2):
        for most in (1, 2, 4):
            yield (
                f"complaints with {corrupt} corrupt, {most} each",
                lambda c=corrupt, most=most: believed(complaints, corrupt=c, most_each=most),
            )
    for n, corrupt in ((3, None), (9, None), (10, None), (4, 1), (5, 2)):
        yield f"quorum of {n}, {corrupt} corrupt", lambda n=n, c=corrupt: quorum(range(n), c)


def _graphs() -> Iterator[Question]:
    for n in (40, 200):
        for what, assumed in (("looks on", HALF), ("lies", LYING)):
            yield f"plan for {n} where a server {what}", lambda n=n, assumed=assumed: plan(n, assumed)
    yield "plan with more bits", lambda: plan(200, replace(HALF, security_bits=80.0))
    yield "assumed to be corrupt", lambda: [HALF.corrupt(n) for n in (5, 10, 19, 100)]
    yield "assumed to vanish", lambda: [HALF.dropouts(n) for n in (5, 10, 19, 100)]
    yield "grinding", lambda: [grinding_bits(n, graphs=g) for n, g in ((40, 1), (40, 8), (1000, 1))]
    yield "against grinding", lambda: HALF.against_grinding(40, graphs=3)
    for number in (0, 1):
        yield f"seed {number} of a beacon", lambda number=number: seed_of_beacon(BEACON, FORTY, number=number)
    yield "seed of another cohort", lambda: seed_of_beacon(BEACON, FORTY[1:])
    yield "seed of a short beacon", lambda: seed_of_beacon(BEACON[1:], FORTY)
    yield "seed of a number below nought", lambda: seed_of_beacon(BEACON, FORTY, number=-1)
    graph = DrawnGraph(clients=FORTY, seed=seed_of_beacon(BEACON, FORTY, number=1))
    yield "graph of the second try", lambda: (graph.is_of(BEACON), graph.is_of(BEACON, graphs=2))
    for seed in (bytes(32), BEACON):
        yield f"ring of seed {seed[-1]}", lambda s=seed: [harary_neighbours(FORTY, 6, s, p) for p in (1, 7, 40)]
        yield f"expander of seed {seed[-1]}", lambda s=seed: [expander_neighbours(FORTY, 12, s, p) for p in (1, 7, 40)]
    for n in (37, 41, 53):
        cohort = tuple(range(1, n + 1))
        yield (
            f"expander of {n}, which has gaps",
            lambda own=cohort: [expander_neighbours(own, 12, BEACON, party) for party in own],
        )
    yield "expander's moves", lambda: expander(64, 16)
    yield "expanders that are certified", lambda: [is_certified(n, 16) for n in (40, 64, 100)]
    yield "fewest holders", lambda: fewest_holders(FORTY, 12, BEACON, FORTY[:20])
    yield "neighbours in a drawn sum", lambda: [DRAWN.neighbours(party) for party in (1, 20, 40)]
    yield (
        "numbers of a signed sum",
        lambda: (SIGNED.shares_needed, SIGNED.corrupt, SIGNED.harmless_colluders, SIGNED.signatures_needed),
    )
    yield "keys of strangers and of others", lambda: [SIGNED.identity_of(party) for party in range(8)]
    yield "keys of helpers and of strangers", lambda: [FOUR.identity_of(party) for party in (4, 5, 6, 9, 10, 99)]
    setup = SumSetup(layout=LAYOUT, clients=CLIENTS, session_id=SESSION)
    yield (
        "survivors where nobody says otherwise",
        lambda: [replace(setup, clients=tuple(range(1, n + 1))).survivors for n in range(2, 30)],
    )
    for signed in range(4):
        proof = {party: KEYS[party].sign(SET_LABEL, set_hash(FOUR.digest, {})) for party in list(BOXES)[:signed]}
        yield (
            f"a failure that {signed} helpers signed",
            lambda own=proof: [
                answer(partial(one.check_failure, SetCertificate(survivors=(), signatures=own).to_payload()))
                for one in (FOUR, SUMS["committee, receipts of helpers"])
            ],
        )
    for name, signer in (("its own", 2), ("the server's", SERVER), ("another client's", 3)):
        yield f"client 2's keys under {name} signature", lambda own=signer: _told_keys_signed_by(own)
    for name in ("committee", *(["bfv"] if MODES["bfv"].installed else [])):
        yield (
            f"what a helper of {name} announces is drawn",
            partial(_drawn_anew, MODES[name], replace(setup, helper_keys={6: KEYS[6].public})),
        )
    yield "whose secrets few hold", lambda: (DRAWN.lonely(FORTY), DRAWN.lonely(FORTY[:4]))
    yield "assumptions beyond all", lambda: Assumptions(corruption=1.0)
    yield "assumptions of no bits", lambda: Assumptions(security_bits=0)


def _drawn_anew(mode: Mode, setup: SumSetup) -> bool:
    """Whether a helper that is asked twice for one sum has other secrets, which nobody can work out then."""
    assert mode.announce is not None
    one, other = (mode.announce(setup, PartySecrets(identity=KEYS[6]))[1] for _ in range(2))
    return (one.boxes, one.decryption) != (other.boxes, other.decryption)


def _told_keys_signed_by(signer: PartyId) -> object:
    """What client 1 answers to a roster with fresh keys for client 2, under somebody's signature."""
    own, vector = PartySecrets(identity=KEYS[1]), np.zeros(3, dtype=np.int64)
    client = SIGNED.client(1, vector, secrets=own, entropy=InsecureSeededEntropy(1))
    client.start()
    keys = {}
    for party in CLIENTS:
        fresh = [KeyPair(bytes([number + party]) * 32).public for number in (50, 60)]
        said = AdvertisedKeys(sealing_key=fresh[0], masking_key=fresh[1])
        statement = signed_statement(
            MessageType.ADVERTISED_KEYS, said.to_payload(), digest=SIGNED.setup_digest, sender=party, recipient=SERVER
        )
        by = KEYS[signer if party == 2 else party]
        keys[party] = replace(said, signature=Ed25519PrivateKey.from_private_bytes(by.secret).sign(statement))
    del keys[1]
    digest = SIGNED.digest_of(MessageType.ROSTER)
    payload = Roster(keys=keys).to_payload()
    return client.receive(
        seal_frame(MessageType.ROSTER, payload, digest=digest, sender=SERVER, recipient=1, identity=KEYS[SERVER])
    )


def _policies() -> Iterator[Question]:
    """A policy that is kept, then each condition by itself that is not."""
    listed = {party: box.public for party, box in BOXES.items() if party < 8}
    helped = ClientPolicy(modes=frozenset({"committee"}), helpers=listed, min_survivors=3)
    known = ClientPolicy(identities=ROSTER, server_identity=KEYS[SERVER].public)
    private = ClientPolicy(modes=frozenset({"masked+noise"}), noise=NoiseDemand(epsilon=1.0), identities=ROSTER)
    release = Release.of("a sum", Fraction(1, 100), SHARES, unit="record", adjacency="add-remove")
    drawn = ClientPolicy(min_corruption=0.1, min_survivors=32, beacon=BEACON)
    only = replace(helped, helpers={})
    asked: list[tuple[str, ClientPolicy, Any, Any]] = [
        ("kept", known, SIGNED, ()),
        ("helpers kept", helped, COMMITTEE, ()),
        ("drawn kept", drawn, DRAWN, ()),
        ("plain", ClientPolicy(), PLAIN, ()),
        ("a committee that is not listed", ClientPolicy(), COMMITTEE, ()),
        ("cohort", ClientPolicy(min_clients=6), MASKED, ()),
        ("survivors", ClientPolicy(min_survivors=5), MASKED, ()),
        ("corruption", ClientPolicy(min_corruption=0.6), MASKED, ()),
        ("corruption of a committee", replace(only, min_corruption=0.4), replace(COMMITTEE, min_survivors=3), ()),
        ("few survivors of a committee", replace(only, min_survivors=1), replace(COMMITTEE, min_survivors=2), ()),
        ("few holders", ClientPolicy(total_holders=2), MASKED, ()),
        ("many holders", ClientPolicy(total_holders=3), MASKED, ()),
        ("no beacon", replace(drawn, beacon=b""), DRAWN, ()),
        ("another beacon", replace(drawn, beacon=bytes(32)), DRAWN, ()),
        ("part of a roster", replace(drawn, identities={**ROSTER}), DRAWN, ()),
        ("bits of privacy", replace(drawn, min_security_bits=41), DRAWN, ()),
        ("graphs of a beacon", replace(drawn, graphs=8), DRAWN, ()),
        ("bits of not being stuck", replace(drawn, min_correctness_bits=21), DRAWN, ()),
        ("few corrupt helpers", only, replace(COMMITTEE, corrupt_helpers=0), ()),
        ("enough corrupt helpers", replace(only, min_corrupt_helpers=0), replace(COMMITTEE, corrupt_helpers=0), ()),
        ("half of the helpers", helped, replace(COMMITTEE, helper_keys=COMMITTEE.helper_keys[:1]), ()),
        ("number of helpers", replace(only, min_helpers=3), COMMITTEE, ()),
        ("another helper", replace(helped, helpers={6: listed[6], 7: bytes(32)}), COMMITTEE, ()),
        ("epoch", replace(only, min_epoch=2), ALL_FOUR, ()),
        ("as long a vector", replace(known, max_entries=LAYOUT.size), SIGNED, ()),
        ("a longer vector", replace(known, max_entries=LAYOUT.size - 1), SIGNED, ()),
        ("no epoch asked", only, ALL_FOUR, ()),
        ("no identities", known, MASKED, ()),
        ("another client's key", replace(known, identities=ROSTER | {2: bytes(32)}), SIGNED, ()),
        (
            "two clients' keys in each other's place",
            replace(known, identities=ROSTER | {1: ROSTER[2], 2: ROSTER[1]}),
            SIGNED,
            (),
        ),
        ("a client less in the roster", replace(known, identities={1: ROSTER[1]}), SIGNED, ()),
        ("another server", replace(known, server_identity=KEYS[9].public), SIGNED, ()),
        ("noise kept", private, NOISY, [release]),
        ("noise of too many releases", private, NOISY, [release] * 5),
        ("noise without a price", private, NOISY, ()),
        ("noise of another unit", private, NOISY, [replace(release, unit="client")]),
        ("noise of another adjacency", private, NOISY, [replace(release, adjacency="replace-one")]),
        ("noise for few colluders", replace(private, min_corruption=0.4), NOISY, [release]),
        ("no noise", replace(known, noise=NoiseDemand(epsilon=1.0)), SIGNED, [release]),
        ("a server's noise", replace(private, modes=frozenset({CENTRAL.name})), CENTRAL, [release]),
    ]
    for receipts in ("none", "server", "countersigned"):
        for by in (None, SignedBy.SERVER, SignedBy.CLIENTS):
            offered: Any = SIGNED if by is None else ReceiptedSum(protocol=SIGNED, signed_by=by)
            asked.append((f"receipts {receipts} of {by}", replace(known, receipts=receipts), offered, ()))
    for name, policy, protocol, releases in asked:
        yield f"policy, {name}", lambda p=policy, s=protocol, r=releases: p.check(s, r)
    for bad in (
        {"modes": "masked"}, {"min_clients": 0}, {"min_survivors": 0}, {"min_corruption": 1.0}, {"total_holders": -1},
        {"min_security_bits": 0}, {"min_correctness_bits": math.nan}, {"min_helpers": 0}, {"min_corrupt_helpers": -1},
        {"min_epoch": 0}, {"graphs": 0}, {"graphs": 1025}, {"receipts": "clients"}, {"beacon": b"short"},
        {"max_entries": 0},
    ):  # fmt: skip
        yield f"policy of {bad}", lambda bad=bad: ClientPolicy(**bad)
    yield "policy that nobody stated", ClientPolicy
    yield "noise demanded of epsilon 0", lambda: NoiseDemand(epsilon=0.0)


def _configurations() -> Iterator[Question]:
    """Sums that cannot be."""
    signed_for_no_server = {"identities": SIGNERS["identities"]}
    for name, change in {
        "no clients": {"clients": ()},
        "a client twice": {"clients": (1, 1, 2)},
        "clients out of order": {"clients": (2, 1, 3)},
        "a client of number 0": {"clients": (0, 1, 2)},
        "a list of clients": {"clients": [1, 2, 3]},
        "a short session": {"session_id": bytes(15)},
        "a long context": {"context": bytes(65)},
        "keys without the server's": signed_for_no_server,
        "a key twice": {**SIGNERS, "identities": (KEYS[1].public,) * 5},
        "short keys": {**SIGNERS, "identities": tuple(bytes([p]) * 31 for p in CLIENTS)},
        "few keys": {**SIGNERS, "identities": SIGNERS["identities"][:4]},
        "two clients": {"clients": (1, 2)},
        "one client": {"clients": (1,)},
        "threshold of 1": {"threshold": 1},
        "threshold of 2": {"threshold": 2},
        "threshold of 3": {"threshold": 3},
        "threshold of 6": {"threshold": 6},
        "threshold of 3, signed": {"threshold": 3, **SIGNERS},
        "an odd degree": {"degree": 3, "threshold": 2, "graph_seed": bytes(32)},
        "a degree of all": {"degree": 6, "threshold": 2, "graph_seed": bytes(32)},
        "a degree without seed": {"degree": 2, "threshold": 2},
        "a seed without degree": {"graph_seed": bytes(32)},
        "a promise that is not kept": {"threshold": 5, "assumptions": Assumptions(corruption=0.2, dropout=0.2)},
        "a lying server and no keys": {"assumptions": Assumptions(malicious_server=True)},
    }.items():
        yield f"masked, {name}", lambda c=change: replace(MASKED, **c).survivors_needed
    for name, change in {
        "no helpers": {"helper_keys": ()},
        "a helper that is a client": {"helper_keys": ((1, BOXES[6].public),)},
        "helpers out of order": {"helper_keys": COMMITTEE.helper_keys[::-1]},
        "two helpers with one key": {"helper_keys": ((6, BOXES[6].public), (7, BOXES[6].public))},
        "a helper's key of zeros": {"helper_keys": ((6, bytes(len(BOXES[6].public))),)},
        "all helpers corrupt": {"corrupt_helpers": 2},
        "one survivor": {"min_survivors": 1},
        "more survivors than clients": {"min_survivors": 6},
        "identities without the helpers'": SIGNERS,
    }.items():
        yield f"committee, {name}", lambda c=change: replace(COMMITTEE, **c)
    yield (
        "committee whose helpers share an identity",
        lambda: replace(FOUR, helper_identities=tuple((party, KEYS[6].public) for party in BOXES)),
    )
    yield (
        "committee with a key of another helper's word",
        lambda: replace(FOUR, helper_keys=(*FOUR.helper_keys[:1], (7, FOUR.helper_keys[0][1]), *FOUR.helper_keys[2:])),
    )
    yield "plain of 0 survivors", lambda: replace(PLAIN, min_survivors=0)
    yield "receipts of nobody who signs", lambda: ReceiptedSum(protocol=MASKED)
    yield "receipts of helpers that are none", lambda: ReceiptedSum(protocol=SIGNED, signed_by=SignedBy.HELPERS)
    yield "noise in a layout without room", lambda: NoisySum(protocol=SIGNED, layout=LAYOUT, noise=SHARES)
    few = replace(COMMITTEE, layout=ROOM, min_survivors=2)
    yield "noise of survivors that are not promised", lambda: NoisySum(protocol=few, layout=LAYOUT, noise=SHARES)
    bears = replace(SIGNED, assumptions=Assumptions(corruption=0.2, dropout=0.2, malicious_server=True), threshold=None)
    trusting = replace(SHARES, colluders=0)
    room = make_room(LAYOUT, 5, trusting)
    yield (
        "noise that trusts colluders",
        lambda: NoisySum(protocol=replace(bears, layout=room), layout=LAYOUT, noise=trusting),
    )
    stranger, secrets = np.zeros(3, dtype=np.int64), PartySecrets(identity=KEYS[2])
    yield "a client's session with another's key", lambda: SIGNED.client(1, stranger, secrets=secrets).party
    yield "a client's session without a key", lambda: SIGNED.client(1, stranger).party
    yield "a stranger's session", lambda: MASKED.client(99, stranger).party
    yield "a key that serves no purpose", lambda: MASKED.client(1, stranger, secrets=secrets).party
    yield "a helper's session with another's boxes", lambda: COMMITTEE.helper(6, secrets=PartySecrets(boxes=BOXES[7]))
    yield "a helper's session without boxes", lambda: COMMITTEE.helper(6)
    yield "a helper where there is none", lambda: MASKED.helper(6)
    yield "a server's session without its key", SIGNED.server
    for name, protocol in {"masked": MASKED, "committee": COMMITTEE, "plain": PLAIN}.items():
        for what, vector in {
            "long": np.zeros(4, dtype=np.int64),
            "of floats": np.zeros(3),
            "beyond its bound": np.array([0, 11, 0]),
        }.items():
            yield f"{name}, a vector {what}", lambda s=protocol, v=vector: s.client(1, v).start()
            yield (
                f"{name}, a vector {what}, made when it is due",
                lambda s=protocol, v=vector: _summed_of_calls(s, v),
            )
    for protocol in (MASKED, COMMITTEE, FOUR, PLAIN):
        assert isinstance(protocol, SumConfig)
        yield (
            f"{protocol.name} of {len(protocol.helpers)}, a failure nobody signed",
            lambda s=protocol: s.check_failure(b""),
        )


def _summed_of_calls(protocol: Any, vector: np.ndarray[Any, Any]) -> object:
    parties = InOneProcess(protocol=protocol, secrets={party: PartySecrets(boxes=BOXES[party]) for party in BOXES})
    return run_in_memory(parties, {party: lambda: vector for party in CLIENTS}).result.total


def _layouts() -> Iterator[Question]:
    two = Layout.of([("a", 2, 100, 10), ("b", 1, 3)])
    yield "layout's bytes", lambda: (two.size, two.wire_bytes, two.canonical(), two.states_client_bounds)
    for bound in (0, 1, 127, 128, 2**15 - 1, 2**15, 2**31, 2**62, 2**63 - 1):
        yield (
            f"segment of bound {bound}",
            lambda b=bound: (lambda s: (s.bits, s.wire_bytes, s.word.str))(Segment(name="a", size=1, bound=b)),
        )
    for name, bad in {
        "no name": ("", 1, 1),
        "no entries": ("a", 0, 1),
        "a bound below 0": ("a", 1, -1),
        "a bound of 2^63": ("a", 1, 2**63),
        "a client beyond all": ("a", 1, 5, 6),
    }.items():
        yield f"layout of {name}", lambda bad=bad: Layout.of([bad])
    yield "layout of two segments of one name", lambda: Layout.of([("a", 1, 1), ("a", 1, 1)])
    yield "layout of nothing", lambda: Layout.of([])
    for name, total, n in (
        ("within", [20, -20, 3], 2), ("beyond a client's", [21, 0, 0], 2), ("beyond all", [0, 0, 4], 2),
        ("of many", [100, 0, 0], 30), ("beyond the sum's", [101, 0, 0], 30),
    ):  # fmt: skip
        yield f"total {name}", lambda t=total, n=n: two.check_total(np.array(t), n)
    for name, vector in {"within": [10, -10, 3], "beyond": [11, 0, 0]}.items():
        yield f"vector {name} its bounds", lambda v=vector: two.check(np.array(v))
    words = RingVector.encode(two, np.array([10, -10, 3]))
    yield "words", lambda: (words.to_bytes(), words.decode())
    yield "words back", lambda: RingVector.from_bytes(two, words.to_bytes()).decode()
    yield "words cut", lambda: RingVector.from_bytes(two, words.to_bytes()[:-1]).decode()

    def beyond() -> object:
        many = RingVector.zeros(two)
        for _ in range(11):
            many.add(words)
        return many.decode()

    yield "words beyond a bound", beyond


def _primitives() -> Iterator[Question]:
    for kind in (KeyPair, BoxKey, IdentityKey):
        yield (
            f"{kind.__name__} of drawn bytes",
            lambda k=kind: [k.generate(lambda n, b=b: b * n).public for b in (b"a", b"b")],
        )
    one, other = KeyPair(bytes(range(32))), KeyPair(bytes(range(1, 33)))
    for label, context in (("a", ()), ("b", ()), ("a", (b"c",)), ("a", (b"c", b"d")), ("a", (b"cd",))):
        yield f"key of {label} {context}", lambda a=label, c=context: derive_key(bytes(32), a, *c)
        yield f"agreed of {label} {context}", lambda a=label, c=context: one.agree(other.public, a, *c)
    yield "agreed with zeros", lambda: one.agree(bytes(32), "a")
    yield "agreed with more than the prime", lambda: one.agree(b"\xff" * 32, "a")
    yield "key of small order", lambda: check_public_key(b"\1" + bytes(31))
    box = seal_box(BOXES[6].public, b"said", "label", b"context")
    yield "box", lambda: BOXES[6].open(box, "label", b"context")
    for name, ask in {
        "another label": lambda: BOXES[6].open(box, "other", b"context"),
        "another context": lambda: BOXES[6].open(box, "label", b"other"),
        "another key": lambda: BOXES[7].open(box, "label", b"context"),
        "a bit changed": lambda: BOXES[6].open(box[:-1] + bytes([box[-1] ^ 1]), "label", b"context"),
    }.items():
        yield f"box, {name}", ask
    yield "box to zeros", lambda: seal_box(bytes(1216), b"said", "label")
    yield "two boxes of one text differ", lambda: box != seal_box(BOXES[6].public, b"said", "label", b"context")
    sealed = seal(bytes(32), b"said", b"associated", entropy=InsecureSeededEntropy(1))
    yield "sealed bytes", lambda: sealed
    yield from changed("sealed", open_sealed, key=bytes(32), sealed=sealed, associated=b"associated")
    yield "sealed under half a key", lambda: open_sealed(bytes(16), AESGCM(bytes(16)).encrypt(bytes(12), b"", b""), b"")
    yield "sealed under a short key", lambda: seal(bytes(31), b"said", b"", entropy=os_entropy)
    signature = KEYS[1].sign("label", b"a", b"b")
    yield "signature", lambda: (signature, is_signed(KEYS[1].public, signature, "label", b"a", b"b"))
    for name, said in {
        "another label": ("other", b"a", b"b"), "other parts": ("label", b"ab", b""), "fewer parts": ("label", b"a"),
    }.items():  # fmt: skip
        yield f"signature of {name}", lambda said=said: is_signed(KEYS[1].public, signature, *said)
    yield "signature of somebody else", lambda: is_signed(KEYS[2].public, signature, "label", b"a", b"b")
    points = (1, 2, 3, 4, 5, 6, 7)
    shares = shamir.split(bytes(range(32)), threshold=3, points=points, entropy=InsecureSeededEntropy(5))
    yield "shares", lambda: shares
    yield from changed(
        "secret that is shared",
        lambda **own: shamir.split(**own, entropy=InsecureSeededEntropy(5)),
        secret=bytes(range(32)),
        threshold=3,
        points=points,
    )
    yield from changed("shares combined", shamir.combine, shares={p: shares[p] for p in (2, 4, 7)})
    yield "shares of nothing", lambda: shamir.combine({})
    yield "shares together", lambda: shamir.combine({p: shares[p] for p in (2, 4, 7)})
    few = {p: shares[p] for p in (2, 4)}
    yield "shares, too few", lambda: shamir.combine(few) != bytes(range(32))
    wrong = {**shares, 3: shares[4], 5: shares[1]}
    yield "shares, two wrong", lambda: shamir.decode(wrong, 3)
    yield "shares, three wrong", lambda: shamir.decode({**wrong, 6: shares[1]}, 3)
    yield "shares, fewer than the threshold", lambda: shamir.decode(few, 3)
    yield "shares of no threshold", lambda: shamir.split(bytes(32), threshold=0, points=points, entropy=os_entropy)
    yield "shares at point 0", lambda: shamir.split(bytes(32), threshold=2, points=(0, 1), entropy=os_entropy)
    yield "shares at a point twice", lambda: shamir.split(bytes(32), threshold=2, points=(1, 1), entropy=os_entropy)
    yield "a share beyond the field", lambda: shamir.combine({1: b"\xff" * 33, 2: shares[2], 3: shares[3]})


def _receipts() -> Iterator[Question]:
    vectors = {party: np.full(3, 2) for party in CLIENTS}

    def receipt(by: SignedBy, value: int = 2, context: bytes = b"") -> tuple[ReceiptedSum, Receipt, Any]:
        own = ReceiptedSum(protocol=replace(SIGNED, context=context), signed_by=by)
        secrets = {party: PartySecrets(identity=KEYS[party]) for party in (SERVER, *CLIENTS)}
        everybody = {party: vector + value - 2 for party, vector in vectors.items()}
        result = run_in_memory(InOneProcess(protocol=own, secrets=secrets), everybody).result
        return own, Receipt.from_bytes(result.receipt), result.total

    protocol, signed, total = receipt(SignedBy.CLIENTS)
    server, known = KEYS[SERVER].public, dict(ROSTER)
    yield "receipt", lambda: (signed.verify(server, known), signed.verify_total(total), protocol.verify(signed))
    first = min(signed.countersignatures)
    changed = replace(signed.statement, survivors=signed.statement.survivors[1:])
    fewer = {p: s for p, s in signed.countersignatures.items() if p != first}
    swapped = dict(zip(signed.countersignatures, reversed(signed.countersignatures.values()), strict=True))
    bad: dict[str, Callable[[], object]] = {
        "of another server": lambda: signed.verify(KEYS[1].public),
        "with a signature changed": lambda: replace(signed, signature=bytes(64)).verify(server),
        "with other survivors": lambda: replace(signed, statement=changed).verify(server),
        "of other uploads": lambda: replace(signed, statement=replace(signed.statement, uploads=bytes(32))).verify(
            server
        ),
        "of another sum": lambda: replace(signed, statement=replace(signed.statement, configuration=bytes(32))).verify(
            server
        ),
        "with few countersignatures": lambda: replace(signed, countersignatures=fewer).verify(server, known),
        "with swapped countersignatures": lambda: replace(signed, countersignatures=swapped).verify(server, known),
        "with none": lambda: replace(signed, countersignatures={}).verify(server, known),
        "that other clients countersigned": lambda: signed.verify(server, {9: known[1]}),
        "for a client whose copy it is not": lambda: signed.verify(server, party=1),
        "for a client that is not in it": lambda: signed.verify(server, party=9),
        "of another total": lambda: signed.verify_total(total + 1),
        "without its opening": lambda: signed.without_opening.verify_total(total),
        "in other bytes": lambda: Receipt.from_bytes(b"x" + signed.to_bytes()[1:]),
        "cut": lambda: Receipt.from_bytes(signed.to_bytes()[:-1]),
        "for another sum's protocol": lambda: replace(protocol, protocol=replace(SIGNED, context=b"other")).verify(
            signed
        ),
    }
    yield from ((f"receipt {name}", ask) for name, ask in bad.items())
    yield "receipt's bytes again", lambda: Receipt.from_bytes(signed.to_bytes()) == signed
    _, second, _ = receipt(SignedBy.SERVER, 1)
    yield "evidence of two totals", lambda: check_evidence(signed, second, server)
    yield "evidence of one total", lambda: check_evidence(signed, signed, server)
    yield "evidence, the first unsigned", lambda: check_evidence(replace(signed, signature=bytes(64)), second, server)
    yield "evidence nobody signed", lambda: check_evidence(signed, replace(second, signature=bytes(64)), server)
    _, elsewhere, _ = receipt(SignedBy.SERVER, 1, b"other")
    yield "evidence of two sums", lambda: check_evidence(signed, elsewhere, server)
    hidden = opening_of(KEYS[SERVER], SIGNED.digest)
    yield "opening", lambda: (hidden, opening_of(KEYS[SERVER], bytes(32)), opening_of(KEYS[1], SIGNED.digest))
    yield (
        "commitment",
        lambda: [commitment(t, o, c) for t in (total, total + 1) for o in (hidden, bytes(32)) for c in (b"a", b"b")],
    )
    for n in (1, 2, 3, 5, 8):
        yield f"tree of {n}", lambda n=n: tree_of({party: bytes([party]) * 32 for party in range(1, n + 1)})


def _stored() -> Iterator[Question]:
    """A stored session opens for its owner, role, session and key; it is not begun twice."""
    vector, key = np.zeros(3, dtype=np.int64), bytes(range(32))

    def store(path: str) -> FileStore:
        return FileStore(Path(path) / "session")

    def elsewhere(protocol: Any, party: int, other: bytes = key, spoil: bool = False) -> object:
        with TemporaryDirectory() as folder:
            DurableClient(store(folder), key, MASKED.client(1, vector)).start()
            path = Path(folder) / "session"
            if spoil:
                path.write_bytes(path.read_bytes()[:-1] + bytes([path.read_bytes()[-1] ^ 1]))
            return DurableClient(store(folder), other, protocol.client(party, vector)).party

    def again(ends: bool) -> object:
        with TemporaryDirectory() as folder:
            own = DurableClient(store(folder), key, MASKED.client(1, vector))
            said = own.start()
            if ends:
                own.end()
            return DurableClient(store(folder), key, MASKED.client(1, vector)).start() == said

    def ended() -> object:
        with TemporaryDirectory() as folder:
            own = DurableClient(store(folder), key, MASKED.client(1, vector))
            own.start()
            own.end()
            return own.start()

    def two_processes() -> object:
        with TemporaryDirectory() as folder:
            one, two = (DurableClient(store(folder), key, MASKED.client(1, vector)) for _ in range(2))
            one.start()
            return two.start()

    def hidden() -> object:
        with TemporaryDirectory() as folder:
            client = MASKED.client(1, vector)
            DurableClient(store(folder), key, client).start()
            kept, path = client.snapshot(), Path(folder) / "session"
            pieces = [kept[place : place + 24] for place in range(0, len(kept) - 24, 24)]
            return any(piece in path.read_bytes() for piece in pieces), oct(path.stat().st_mode & 0o777)

    def server(spoil: bool) -> object:
        with TemporaryDirectory() as folder:
            own = DurableServer(store(folder), MASKED.server())
            own.receive(1, MASKED.client(1, vector).start() or b"")
            path = Path(folder) / "session"
            if spoil:
                path.write_bytes(path.read_bytes()[:-1] + bytes([path.read_bytes()[-1] ^ 1]))
            return sorted(DurableServer(store(folder), MASKED.server()).waiting_for)

    def sealed() -> bytes:
        with TemporaryDirectory() as folder:
            client = MASKED.client(1, vector, entropy=InsecureSeededEntropy(1, "questions"))
            DurableClient(store(folder), key, client).start()
            return (Path(folder) / "session").read_bytes()

    yield "stored twice, the same bytes", lambda: sealed() == sealed()
    yield "stored, the same", lambda: elsewhere(MASKED, 1)
    yield "stored, another party", lambda: elsewhere(MASKED, 2)
    yield "stored, another session", lambda: elsewhere(replace(MASKED, session_id=bytes(16)), 1)
    yield "stored, another key", lambda: elsewhere(MASKED, 1, bytes(32))
    yield "stored, a bit changed", lambda: elsewhere(MASKED, 1, key, True)
    yield "stored, a short key", lambda: elsewhere(MASKED, 1, bytes(31))
    yield "stored, asked again", lambda: again(False)
    yield "stored, ended and begun", lambda: again(True)
    yield "stored, ended and asked", ended
    yield "stored, two processes", two_processes
    yield "stored, sealed", hidden
    yield "stored server", lambda: server(False)
    yield "stored server, a bit changed", lambda: server(True)
    yield "stored, a server that adds noise", CENTRAL.server(secrets=PartySecrets(identity=KEYS[SERVER])).snapshot
    client = MASKED.client(1, vector)
    yield "bound to", lambda: [one.bound_to for one in (client, MASKED.client(2, vector), MASKED.server())]
    yield "bound to, helper", lambda: COMMITTEE.helper(6, secrets=PartySecrets(boxes=BOXES[6])).bound_to
    yield "bound to, noise", lambda: NOISY.client(1, vector, secrets=PartySecrets(identity=KEYS[1])).bound_to


def _epochs() -> Iterator[Question]:
    first = SealingKey.signed(KEYS[6], BOXES[6].public, epoch=2, until=100)
    yield "sealing key", lambda: (first.to_bytes(), first.check(KEYS[6].public))
    for name, other in {
        "another epoch": replace(first, epoch=3), "another end": replace(first, until=200),
        "another key": replace(first, key=BOXES[7].public), "no epoch": SealingKey.signed(KEYS[6], first.key, epoch=0),
    }.items():  # fmt: skip
        yield f"sealing key, {name}", lambda other=other: other.check(KEYS[6].public)
    yield "sealing key, another helper", lambda: first.check(KEYS[7].public)
    yield "sealing key, cut", lambda: SealingKey.from_bytes(first.to_bytes()[:-1])

    def accepted(*keys: tuple[SealingKey, float]) -> object:
        with TemporaryDirectory() as folder:
            for key, now in keys:
                AcceptedEpochs(FileStore(Path(folder) / "accepted")).accept({KEYS[6].public: key}, now)
        return "accepted"

    def of(epoch: int, box: int = 6) -> SealingKey:
        return SealingKey.signed(KEYS[6], BOXES[box].public, epoch=epoch, until=100)

    yield "epochs, the next", lambda: accepted((of(1), 1.0), (of(2), 1.0))
    yield "epochs, the same", lambda: accepted((of(2), 1.0), (of(2), 1.0))
    yield "epochs, an older one", lambda: accepted((of(2), 1.0), (of(1), 1.0))
    yield "epochs, one that is over", lambda: accepted((of(2), 101.0))
    forged = SealingKey.signed(KEYS[7], BOXES[6].public, epoch=1, until=100)
    yield "epochs, one that another signed", lambda: accepted((forged, 1.0))
    yield "epochs, two keys for one", lambda: accepted((of(2), 1.0), (of(2, 7), 1.0))

    def own(then: Callable[[OwnEpochs], object]) -> object:
        with TemporaryDirectory() as folder:
            epochs = OwnEpochs(FileStore(Path(folder) / "own"), KEYS[6])
            key = epochs.begin(0.0, 10.0)
            before = (Path(folder) / "own").read_bytes()
            current = epochs.current(1.0)
            assert current is not None
            shown = current[1].secret in before or current[1].public != key.key
            again = OwnEpochs(FileStore(Path(folder) / "own"), KEYS[6])
            return (shown, key.epoch, key.until, then(again), again.has_ended(5.0), again.has_ended(11.0))

    yield "own epoch", lambda: own(lambda epochs: epochs.current(5.0) is not None)
    yield "own epoch, over", lambda: own(lambda epochs: (epochs.current(11.0), epochs.current(1.0)))
    yield "own epoch, erased", lambda: own(lambda epochs: (epochs.erase(), epochs.current(1.0)))
    yield "own epoch, the next", lambda: own(lambda epochs: epochs.begin(1.0, 10.0).epoch)
    yield "own epoch, an older number", lambda: own(lambda epochs: epochs.begin(1.0, 10.0, number=1).epoch)
    yield "own epoch, of no time", lambda: own(lambda epochs: epochs.begin(1.0, 0.0).epoch)
    yield (
        "own epoch, another's",
        lambda: own(lambda epochs: OwnEpochs(epochs._store, KEYS[7]).current(1.0)),
    )


def _encrypted() -> Iterator[Question]:
    wide = Layout.of([("gram", 5000, 2**50), ("count", 1, 2**20)])
    for layout_name, layout in (("few", LAYOUT), ("wide", wide)):
        for scheme in ("bfv", "ckks"):
            for masked in (False, True):
                yield (
                    f"parameters of {scheme}, {layout_name}{', masked' * masked}",
                    lambda own=layout, s=scheme, m=masked: (
                        lambda p: (p, p.canonical(), p.error_bound, p.ciphertext_bytes)
                    )(choose_parameters(own, 20, scheme=s, masked=m)),
                )
    good = choose_parameters(LAYOUT, 5, scheme="bfv")
    for bad in (
        {"degree": 2048}, {"degree": 4096, "prime_bits": (60, 60)}, {"prime_bits": ()}, {"n_clients": 0},
        {"slot_bound": good.slot_load + 1}, {"plain_modulus": 65536}, {"scale_bits": 3}, {"scheme": "bgv"},
        {"n_clients": 10**9}, {"plain_modulus": 17},
    ):  # fmt: skip
        yield f"parameters with {bad}", lambda bad=bad: replace(good, **bad)
    yield "key holder that is a client", lambda: check_key_holder(1, CLIENTS)
    yield "key holder that is the server", lambda: check_key_holder(0, CLIENTS)
    yield "key holder", lambda: check_key_holder(6, CLIENTS)
    yield "fingerprint", lambda: fingerprint(b"context")
    yield "pinned context", lambda: pin_context(b"context", fingerprint(b"context"))
    yield "pinned context, another", lambda: pin_context(b"other", fingerprint(b"context"))
    residues = np.arange(2 * len(good.primes) * good.degree, dtype=np.uint64).reshape(2, -1, good.degree)
    packed = pack(residues, good)
    yield "residues packed", lambda: packed
    yield from changed("ciphertexts read", partial(read_ciphertexts, parameters=good), data=packed, n_ciphertexts=1)
    yield "ciphertexts beyond the modulus", lambda: read_ciphertexts(b"\xff" * len(packed), good, 1)

    def added(*many: bytes) -> bytes:
        own = CiphertextSum(good, 1)
        for one in many:
            own.add(one, peer=1)
        return own.to_bytes()

    def many() -> object:
        own = CiphertextSum(replace(good, n_clients=2), 1)
        for peer in (1, 2, 3):
            own.add(pack(residues + np.uint64(peer), good), peer=peer)
        return own.count

    yield "ciphertexts of more clients than there are", many
    other = pack(residues[:, :, ::-1], good)
    for name, many in {"one": (packed,), "two": (packed, other), "one twice": (packed, packed)}.items():
        yield f"ciphertexts added, {name}", lambda many=many: added(*many)
    drawn = gaussian_rounding(np.arange(0, 97, 12), 97, InsecureSeededEntropy(2, "questions"))
    yield "rounding at random", lambda: drawn
    carrier = Encrypted(parameters=good, public_context=b"context", key_holder=6)
    yield (
        "context that its holder did not sign",
        lambda: _refused_for_its_signature(replace(carrier, holder_identity=KEYS[6].public)),
    )
    signed = {
        "signature": sign_context(KEYS[6], b"context", parameters=good, session_id=SESSION, key_holder=6),
        "holder_identity": KEYS[6].public,
    }
    yield (
        "context that was signed for another session, or for this",
        lambda: [
            _refused_for_its_signature(replace(carrier, **signed), session)
            for session in (bytes(len(SESSION)), SESSION)
        ],
    )
    yield "what a digest takes of a context", lambda: carrier.digested
    yield (
        "security by degree",
        lambda: [EncryptionParameters.__module__, *(choose_parameters(LAYOUT, n).all_prime_bits for n in (3, 30, 300))],
    )


def _refused_for_its_signature(carrier: Encrypted, session_id: bytes = SESSION) -> bool:
    try:
        PlainSum(layout=LAYOUT, clients=CLIENTS, session_id=session_id, carrier=carrier)
    except ConfigurationError as error:
        return "is not signed by key holder" in str(error)
    return False


def _differences() -> Iterator[Question]:
    everybody = frozenset(range(10))
    asked = {
        "the same": ([everybody], everybody),
        "one less": ([everybody], everybody - {0}),
        "four less": ([everybody], everybody - {0, 1, 2, 3}),
        "others": ([everybody], frozenset(range(20, 30))),
        "three that leave one": ([frozenset({1, 2, 3, 4, 5}), frozenset({1, 6, 7, 8, 9})], frozenset(range(1, 10))),
        "nothing before": ([], frozenset({1, 2})),
    }
    for name, (earlier, new) in asked.items():
        yield f"left of {name}", lambda earlier=earlier, new=new: fewest_left(earlier, new)
    rows = [(party, 1) for party in range(5)]
    yield (
        "left where one has other rows",
        lambda: fewest_left(
            [rows],
            [*rows[1:], (0, 2)],
            owner=lambda vector: vector[0],
        ),
    )
