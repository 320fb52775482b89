"""Messages with exactly one fault each, made from the messages of a good run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from slow_bytes import HEADER, SIGNATURE, Cursor, Type, number, write_entries, write_frame, write_parties
from slow_client import SEALED_BYTES, peers_statement, survivors_statement
from slow_curves import L, P, ed25519_sign
from slow_session import Session
from slow_shamir import PRIME

REMOTE, MALFORMED, REPEATED = "RemoteProtocolError", "MalformedMessageError", "RepeatedMessageError"
GOES_ON, ABORTED = "goes on", "aborted"
Scenario = Mapping[str, Any]
Bad = dict[str, Any]


class Forge:
    """Takes one message of a good run and spoils it."""

    def __init__(self, file: str, scenario: Scenario) -> None:
        self.file, self.scenario = file, scenario
        self.messages: Sequence[Mapping[str, Any]] = scenario.get("messages") or scenario["sums"][0]["messages"]

    def find(self, type_: str, party: int) -> int:
        """Where the message of this type from or to this client stands."""
        return next(
            i for i, m in enumerate(self.messages) if m["type"] == type_ and party in (m["sender"], m["recipient"])
        )

    def message(self, type_: str, party: int) -> bytes:
        return bytes.fromhex(self.messages[self.find(type_, party)]["message"])

    def payload(self, type_: str, party: int) -> bytes:
        message = self.message(type_, party)
        return message[HEADER : len(message) - message[HEADER - 1]]

    def with_payload(self, message: bytes, change: Callable[[bytes], bytes]) -> bytes:
        """The message with another payload, signed by its sender where messages are: it is the sender that lies."""
        type_, digest, parties = message[5], message[6:38], message[38:46]
        sender, recipient = int.from_bytes(parties[:4], "big"), int.from_bytes(parties[4:], "big")
        payload = change(message[HEADER : len(message) - message[HEADER - 1]])
        secret = bytes.fromhex(self.scenario["identity_secrets"].get(str(sender), ""))
        return write_frame(type_, digest, sender, recipient, payload, secret)

    def bad(
        self,
        about: str,
        type_: str,
        party: int,
        change: Callable[[bytes], bytes],
        error: str,
        afterwards: str,
        *,
        after: int = 0,
        when: str = "received",
    ) -> Bad:
        """The message of this type from or to this client with another payload; ``after``: that much later."""
        return self.raw(
            about, type_, party, lambda m: self.with_payload(m, change), error, afterwards, after=after, when=when
        )

    def raw(
        self,
        about: str,
        type_: str,
        party: int,
        change: Callable[[bytes], bytes],
        error: str,
        afterwards: str,
        *,
        after: int = 0,
        when: str = "received",
    ) -> Bad:
        """The same with a change of the whole message."""
        at = self.find(type_, party)
        original = self.messages[at]
        return {
            "about": about,
            "scenario": self.file,
            "delivered": at + after,
            "sender": original["sender"],
            "recipient": original["recipient"],
            "message": change(bytes.fromhex(original["message"])).hex(),
            "refused_when": when,
            "error": error,
            "afterwards": afterwards,
        }


def entries(change: Callable[[dict[int, bytes]], Any], n_bytes: int, skip: int = 0) -> Callable[[bytes], bytes]:
    """A payload whose entries, after ``skip`` other bytes, are changed."""

    def changed(payload: bytes) -> bytes:
        listed = Cursor(payload[skip:]).entries(n_bytes)
        change(listed)
        return payload[:skip] + write_entries(listed)

    return changed


def flip(data: bytes, at: int = -1) -> bytes:
    """One bit changed."""
    changed = bytearray(data)
    changed[at] ^= 1
    return bytes(changed)


def swap_contents(listed: dict[int, bytes]) -> None:
    one, other = sorted(listed)[:2]
    listed[one], listed[other] = listed[other], listed[one]


def all_bad_messages(scenarios: Mapping[str, Scenario]) -> Iterator[tuple[str, Bad]]:
    """(name, vector), each named for its fault."""
    trusting = Forge("complete_no_dropouts.json", scenarios["complete_no_dropouts.json"])
    dropping = Forge("complete_dropout_before_input.json", scenarios["complete_dropout_before_input.json"])
    silent = Forge("complete_dropout_before_shares.json", scenarios["complete_dropout_before_shares.json"])
    tight = Forge("complete_dropout_before_unmasking.json", scenarios["complete_dropout_before_unmasking.json"])
    signed = Forge("authenticated_dropouts.json", scenarios["authenticated_dropouts.json"])
    sparse = Forge("sparse_dropouts.json", scenarios["sparse_dropouts.json"])
    expander = Forge("authenticated_sparse.json", scenarios["authenticated_sparse.json"])
    bundled = Forge("series_of_two.json", scenarios["series_of_two.json"])
    yield from _frames(trusting)
    yield from _lists(trusting)
    yield from _keys(trusting, signed, sparse)
    yield from _shares(trusting, sparse)
    yield from _inputs(trusting)
    yield from _rounds(trusting)
    yield from _survivors(trusting, signed)
    yield from _silent_survivor(silent)
    yield from _unmasking(trusting, dropping, tight)
    yield from _peers(expander)
    yield from _bundles(bundled)


def _frames(good: Forge) -> Iterator[tuple[str, Bad]]:
    foreign = Session.of({**good.scenario["parameters"], "session_id": "ee" * 16}).setup_digest
    to_client, to_server = ("ROSTER", 5), ("SEALED_SHARES", 5)
    changes: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
        "foreign_session": ("of another session id", lambda m: m[:6] + foreign + m[38:]),
        "wrong_magic": ("with another magic", lambda m: b"GGAS" + m[4:]),
        "wrong_version": ("of version 6", lambda m: m[:4] + b"\6" + m[5:]),
        "old_version": ("of version 4", lambda m: m[:4] + b"\4" + m[5:]),
        "needless_signature": ("with a signature where nobody signs", lambda m: m[:46] + b"\x40" + m[47:] + bytes(64)),
        "unknown_type": ("of a type that does not exist", lambda m: m[:5] + b"\xff" + m[6:]),
        "wrong_sender": ("that names another sender", lambda m: m[:38] + number(9) + m[42:]),
        "wrong_recipient": ("that names another recipient", lambda m: m[:42] + number(9) + m[46:]),
        "truncated_header": ("cut within its header", lambda m: m[:46]),
    }
    for name, (what, change) in changes.items():
        yield f"{name}_to_client", good.raw(f"A ROSTER {what}.", *to_client, change, MALFORMED, GOES_ON)
        yield f"{name}_to_server", good.raw(f"A SEALED_SHARES {what}.", *to_server, change, MALFORMED, GOES_ON)
    same = bytes
    yield "replayed_roster", good.raw("A ROSTER that was answered.", *to_client, same, REPEATED, GOES_ON, after=1)
    yield "replayed_shares", good.raw("A SEALED_SHARES that was taken.", *to_server, same, REPEATED, GOES_ON, after=1)
    early = write_frame(Type.UNMASK_REQUEST, bytes.fromhex(good.scenario["digest"]), 0, 5, number(0))
    yield (
        "request_before_input",
        good.raw("An UNMASK_REQUEST when a ROSTER is due.", *to_client, lambda _: early, REMOTE, ABORTED),
    )
    yield (
        "shares_in_next_round",
        good.raw("A late SEALED_SHARES of a client that has one in.", *to_server, same, REMOTE, GOES_ON, after=8),
    )


def _lists(good: Forge) -> Iterator[tuple[str, Bad]]:
    def unsorted(payload: bytes) -> bytes:
        size = (len(payload) - 4) // 2
        return payload[:4] + payload[4 + size :] + payload[4 : 4 + size]

    def repeated(payload: bytes) -> bytes:
        size = (len(payload) - 4) // 2
        return payload[: 4 + size] + payload[4 : 4 + size]

    lists: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
        "unsorted_entries": ("whose entries descend", unsorted),
        "repeated_entry": ("with one entry twice", repeated),
        "missing_entry": ("that counts one entry more than it has", lambda p: number(3) + p[4:]),
        "huge_count": ("that counts 2^32 - 1 entries", lambda p: b"\xff" * 4 + p[4:]),
        "excess_bytes": ("with a byte too many", lambda p: p + b"\0"),
        "empty_payload": ("without payload", lambda p: b""),
    }
    for name, (what, change) in lists.items():
        yield name, good.bad(f"A ROSTER {what}.", "ROSTER", 5, change, MALFORMED, ABORTED)


def _keys(good: Forge, signed: Forge, sparse: Forge) -> Iterator[tuple[str, Bad]]:
    def swap_keys(listed: dict[int, bytes]) -> None:
        first = min(listed)
        listed[first] = flip(listed[first], 40)

    def repeat_keys(listed: dict[int, bytes]) -> None:
        one, other = sorted(listed)[:2]
        listed[one] = listed[other]

    def rename(listed: dict[int, bytes]) -> None:
        listed[3] = listed.pop(min(listed))

    taken = good.payload("ADVERTISED_KEYS", 2)
    low_order = number(1, 32)[::-1]
    own = good.payload("ADVERTISED_KEYS", 5)
    yield (
        "forged_key_signature",
        signed.bad("A ROSTER in which one masking key was changed.", "ROSTER", 2, entries(swap_keys, 128), REMOTE,
                   ABORTED),
    )  # fmt: skip
    yield (
        "forged_signature",
        signed.raw("A MASKED_INPUT whose signature was changed.", "MASKED_INPUT", 2, flip, MALFORMED, GOES_ON),
    )
    yield (
        "changed_masked_input",
        signed.raw("A MASKED_INPUT with one bit of its vector changed.", "MASKED_INPUT", 2, lambda m: flip(m, HEADER),
                   MALFORMED, GOES_ON),
    )  # fmt: skip
    yield (
        "changed_request",
        signed.raw("An UNMASK_REQUEST with one bit changed.", "UNMASK_REQUEST", 2, lambda m: flip(m, HEADER + 3),
                   MALFORMED, GOES_ON),
    )  # fmt: skip
    yield (
        "missing_signature",
        signed.raw("A MASKED_INPUT without a signature where everybody signs.", "MASKED_INPUT", 2,
                   lambda m: m[:46] + b"\0" + m[47:-SIGNATURE], MALFORMED, GOES_ON),
    )  # fmt: skip
    yield (
        "cut_signature",
        signed.raw("A message that ends within its signature.", "MASKED_INPUT", 2, lambda m: m[:HEADER] + m[-63:],
                   MALFORMED, GOES_ON),
    )  # fmt: skip
    yield (
        "signed_by_another",
        signed.raw("A MASKED_INPUT that another client signed.", "MASKED_INPUT", 2,
                   lambda m: m[:-SIGNATURE] + signed.message("MASKED_INPUT", 5)[-SIGNATURE:], MALFORMED, GOES_ON),
    )  # fmt: skip
    yield (
        "malleable_signature",
        signed.raw("ADVERTISED_KEYS whose signature has S + L for S.", "ADVERTISED_KEYS", 2,
                   lambda m: m[:-32] + (int.from_bytes(m[-32:], "little") + L).to_bytes(32, "little"), MALFORMED,
                   GOES_ON),
    )  # fmt: skip
    yield (
        "repeated_key_in_roster",
        good.bad("A ROSTER with the same keys for two clients.", "ROSTER", 5, entries(repeat_keys, 64), REMOTE,
                 ABORTED),
    )  # fmt: skip
    yield (
        "own_key_in_roster",
        good.bad("A ROSTER that gives a peer the client's own sealing key.", "ROSTER", 5,
                 entries(lambda e: e.update({2: own[:32] + e[2][32:]}), 64), REMOTE, ABORTED),
    )  # fmt: skip
    yield (
        "stranger_in_roster",
        good.bad("A ROSTER with a party outside the cohort.", "ROSTER", 5, entries(rename, 64), REMOTE, ABORTED),
    )
    yield (
        "self_in_roster",
        good.bad("A ROSTER that lists its own recipient.", "ROSTER", 5,
                 entries(lambda e: e.update({5: e.pop(9)}), 64), REMOTE, ABORTED),
    )  # fmt: skip
    party = sparse.scenario["parameters"]["clients"][0]
    near = set(sparse.scenario["neighbours"][str(party)])
    far = min(set(sparse.scenario["parameters"]["clients"]) - near - {party})
    yield (
        "no_neighbour_in_roster",
        sparse.bad("A ROSTER with a client of the cohort that is no neighbour.", "ROSTER", party,
                   entries(lambda e: e.update({far: bytes(range(64))}), 64), REMOTE, ABORTED),
    )  # fmt: skip
    yield (
        "too_short_roster",
        good.bad("A ROSTER with fewer clients than the threshold needs.", "ROSTER", 5, entries(dict.clear, 64), REMOTE,
                 ABORTED),
    )  # fmt: skip
    yield (
        "small_order_key_in_roster",
        good.bad("A ROSTER with a sealing key of small order.", "ROSTER", 5,
                 entries(lambda e: e.update({2: low_order + e[2][32:]}), 64), REMOTE, ABORTED),
    )  # fmt: skip
    yield (
        "small_order_key",
        good.bad("ADVERTISED_KEYS with a masking key of small order.", "ADVERTISED_KEYS", 5,
                 lambda p: p[:32] + low_order, REMOTE, GOES_ON),
    )  # fmt: skip
    yield (
        "small_order_key_not_reduced",
        good.bad("ADVERTISED_KEYS with p + 1, a masking key of small order in a form that is not reduced.",
                 "ADVERTISED_KEYS", 5, lambda p: p[:32] + (P + 1).to_bytes(32, "little"), REMOTE, GOES_ON),
    )  # fmt: skip
    yield (
        "twin_key",
        good.bad("ADVERTISED_KEYS with the bit set that X25519 ignores: a second name for the same key.",
                 "ADVERTISED_KEYS", 5, lambda p: p[:63] + bytes([p[63] | 0x80]), REMOTE, GOES_ON),
    )  # fmt: skip
    yield (
        "repeated_key",
        good.bad("ADVERTISED_KEYS with another client's keys.", "ADVERTISED_KEYS", 5, lambda _: taken, REMOTE, GOES_ON),
    )
    yield (
        "one_key_for_both",
        good.bad("ADVERTISED_KEYS with one key for both purposes.", "ADVERTISED_KEYS", 5, lambda p: p[:32] * 2, REMOTE,
                 GOES_ON),
    )  # fmt: skip


def _shares(good: Forge, sparse: Forge) -> Iterator[tuple[str, Bad]]:
    def lengthen(listed: dict[int, bytes]) -> None:
        listed[9] = listed[9] + b"\0"

    yield (
        "swapped_sealed_share",
        good.bad("A SHARE_DELIVERY in which two clients' boxes changed places.", "SHARE_DELIVERY", 5,
                 entries(swap_contents, SEALED_BYTES), REMOTE, ABORTED),
    )  # fmt: skip
    yield (
        "changed_sealed_share",
        good.bad("A SHARE_DELIVERY with one bit changed.", "SHARE_DELIVERY", 5, flip, REMOTE, ABORTED),
    )
    yield (
        "shares_of_a_stranger",
        good.bad("A SHARE_DELIVERY from a party outside the roster.", "SHARE_DELIVERY", 5,
                 entries(lambda e: e.update({7: e.pop(9)}), SEALED_BYTES), REMOTE, ABORTED),
    )  # fmt: skip
    yield (
        "too_few_shares_delivered",
        good.bad("A SHARE_DELIVERY from fewer clients than the threshold needs.", "SHARE_DELIVERY", 5,
                 entries(dict.clear, SEALED_BYTES), REMOTE, ABORTED),
    )  # fmt: skip
    yield (
        "shares_left_out",
        good.bad("SEALED_SHARES that leave a client of the roster out.", "SEALED_SHARES", 5,
                 entries(lambda e: e.pop(2), SEALED_BYTES, 32), REMOTE, GOES_ON),
    )  # fmt: skip
    yield (
        "shares_for_a_stranger",
        good.bad("SEALED_SHARES with a box for a party outside the cohort.", "SEALED_SHARES", 5,
                 entries(lambda e: e.update({7: bytes(SEALED_BYTES)}), SEALED_BYTES, 32), REMOTE, GOES_ON),
    )  # fmt: skip
    yield (
        "long_box",
        good.bad("SEALED_SHARES with a box one byte too long.", "SEALED_SHARES", 5,
                 entries(lengthen, SEALED_BYTES, 32), MALFORMED, GOES_ON),
    )  # fmt: skip


def _inputs(good: Forge) -> Iterator[tuple[str, Bad]]:
    yield (
        "truncated_masked_input",
        good.bad("A MASKED_INPUT one byte short.", "MASKED_INPUT", 5, lambda p: p[:-1], MALFORMED, GOES_ON),
    )
    yield (
        "long_masked_input",
        good.bad("A MASKED_INPUT one byte too long.", "MASKED_INPUT", 5, lambda p: p + b"\0", MALFORMED, GOES_ON),
    )
    yield (
        "input_of_another_layout",
        good.raw("A MASKED_INPUT bound to the set-up's digest.", "MASKED_INPUT", 5,
                 lambda m: m[:6] + bytes.fromhex(good.scenario["setup_digest"]) + m[38:], MALFORMED, GOES_ON),
    )  # fmt: skip


def _rounds(good: Forge) -> Iterator[tuple[str, Bad]]:
    for type_ in ("ADVERTISED_KEYS", "SEALED_SHARES", "MASKED_INPUT", "UNMASK_SHARES"):
        short = good.raw(f"A round of {type_} that closes after one answer.", type_, 2, bytes, "TooFewSurvivorsError",
                         ABORTED, after=1, when="round closes")  # fmt: skip
        yield f"too_few_{type_.lower()}", {**short, "message": None}
    yield (
        "total_out_of_bounds",
        good.bad("A MASKED_INPUT with the highest bit of its first entry changed, so that the total leaves its bound.",
                 "MASKED_INPUT", 5, lambda p: p[:1] + bytes([p[1] ^ 0x80]) + p[2:], "SumOutOfBoundsError", ABORTED,
                 when="sum ends"),
    )  # fmt: skip


def _survivors(good: Forge, signed: Forge) -> Iterator[tuple[str, Bad]]:
    parameters = signed.scenario["parameters"]
    session = Session.of(parameters)
    party = 2
    named = list(Cursor(signed.payload("UNMASK_REQUEST", party)).entries(0))
    other = [peer for peer in session.clients if peer not in (party, *named)][-1:]  # another set of the same size
    equivocated = {
        peer: ed25519_sign(bytes.fromhex(signed.scenario["identity_secrets"][str(peer)]),
                           survivors_statement(session, other))
        for peer in Cursor(signed.payload("SURVIVOR_PROOF", party)).entries(64)
    }  # fmt: skip
    requests = {
        "unmask_overlap": ("the client that it asks", [5]),
        "stranger_among_dropouts": ("a party outside the cohort", [7]),
        "too_few_survivors": ("so many dropouts that a total would hold too few", [2, 9]),
    }
    for name, (what, dropouts) in requests.items():
        listed = write_parties(dropouts)
        yield (
            name,
            good.bad(f"An UNMASK_REQUEST that names {what}.", "UNMASK_REQUEST", 5, lambda _, b=listed: b, REMOTE,
                     ABORTED),
        )  # fmt: skip
    yield (
        "forged_survivor_signature",
        signed.bad("A SURVIVOR_SIGNATURE with one bit changed.", "SURVIVOR_SIGNATURE", party, flip, REMOTE, GOES_ON),
    )
    yield (
        "signature_of_another_client",
        signed.bad("A SURVIVOR_SIGNATURE that another client made.", "SURVIVOR_SIGNATURE", party,
                   lambda _: signed.payload("SURVIVOR_SIGNATURE", 5), REMOTE, GOES_ON),
    )  # fmt: skip
    yield (
        "equivocated_survivors",
        signed.bad("A SURVIVOR_PROOF of good signatures on another survivor set than this client was told.",
                   "SURVIVOR_PROOF", party, lambda _: write_entries(equivocated), REMOTE, ABORTED),
    )  # fmt: skip
    yield (
        "forged_survivor_proof",
        signed.bad("A SURVIVOR_PROOF with one bit changed.", "SURVIVOR_PROOF", party, flip, REMOTE, ABORTED),
    )
    yield (
        "too_few_signatures",
        signed.bad("A SURVIVOR_PROOF with one signature less than needed.", "SURVIVOR_PROOF", party,
                   entries(dict.popitem, 64), REMOTE, ABORTED),
    )  # fmt: skip
    yield (
        "signature_of_a_dropout",
        signed.bad("A SURVIVOR_PROOF with a signature of a dropout.", "SURVIVOR_PROOF", party,
                   entries(lambda e: e.update({named[0]: e.pop(max(e))}), 64), REMOTE, ABORTED),
    )  # fmt: skip
    yield (
        "request_instead_of_proof",
        signed.bad("A second, other UNMASK_REQUEST when a SURVIVOR_PROOF is due.", "UNMASK_REQUEST", party,
                   lambda _: write_parties(other), REMOTE, ABORTED, after=1),
    )  # fmt: skip


def _silent_survivor(good: Forge) -> Iterator[tuple[str, Bad]]:
    yield (
        "silent_survivor",
        good.bad("An UNMASK_REQUEST that makes a survivor of a client that shared no secrets.", "UNMASK_REQUEST", 4,
                 lambda _: write_parties([]), REMOTE, ABORTED),
    )  # fmt: skip


def _unmasking(good: Forge, dropping: Forge, tight: Forge) -> Iterator[tuple[str, Bad]]:
    gone = min(Cursor(dropping.payload("UNMASK_SHARES", 4)).entries(33))
    not_in_field = entries(lambda e: e.update({1: number(PRIME, 33)}), 33, 4)
    yield (
        "both_secrets_of_one",
        dropping.bad("UNMASK_SHARES with shares of both secrets of a dropout.", "UNMASK_SHARES", 4,
                     lambda p: p[:41] + entries(lambda e: e.update({gone: bytes(33)}), 33)(p[41:]), REMOTE, GOES_ON),
    )  # fmt: skip
    yield (
        "self_mask_of_a_dropout",
        dropping.bad("UNMASK_SHARES with a dropout's share among the self-masks.", "UNMASK_SHARES", 4,
                     lambda p: number(0) + entries(lambda e: e.update({gone: p[8:41]}), 33)(p[41:]), REMOTE, GOES_ON),
    )  # fmt: skip
    yield (
        "share_left_out",
        good.bad("UNMASK_SHARES without the sender's own share.", "UNMASK_SHARES", 5,
                 entries(lambda e: e.pop(5), 33, 4), REMOTE, GOES_ON),
    )  # fmt: skip
    yield (
        "wrong_share",
        tight.bad("UNMASK_SHARES with one bit of a share changed, where no share is to spare.", "UNMASK_SHARES", 1,
                  flip, REMOTE, ABORTED, when="round closes"),
    )  # fmt: skip
    yield (
        "wrong_mask_key_share",
        dropping.bad("UNMASK_SHARES with one bit of a share of a dropout's mask key changed.", "UNMASK_SHARES", 1,
                     lambda p: flip(p, 40), REMOTE, ABORTED, when="round closes"),
    )  # fmt: skip
    yield (
        "share_outside_field",
        tight.bad("UNMASK_SHARES with p itself for a share, where none is to spare.", "UNMASK_SHARES", 1, not_in_field,
                  REMOTE, ABORTED, when="round closes"),
    )  # fmt: skip
    yield (
        "truncated_shares",
        good.bad("UNMASK_SHARES one byte short.", "UNMASK_SHARES", 5, lambda p: p[:-1], MALFORMED, GOES_ON),
    )


def _peers(good: Forge) -> Iterator[tuple[str, Bad]]:
    party, gone = 201, 204
    session = Session.of(good.scenario["parameters"])
    near = [peer for peer in session.neighbours(party) if peer != gone]
    lists_end = 4 + 68 * session.signatures_needed
    elsewhere = ed25519_sign(
        bytes.fromhex(good.scenario["identity_secrets"][str(near[0])]), peers_statement(session, [])
    )
    yield (
        "short_delivery",
        good.bad("A SHARE_DELIVERY that leaves out a neighbour which it does not name among the absent.",
                 "SHARE_DELIVERY", party, entries(lambda e: e.pop(near[0]), SEALED_BYTES, 8), REMOTE, ABORTED),
    )  # fmt: skip
    yield (
        "absent_but_here",
        good.bad("A SHARE_DELIVERY that names a neighbour among the absent and brings its shares.", "SHARE_DELIVERY",
                 party, lambda p: write_parties(sorted([gone, near[0]])) + p[8:], REMOTE, ABORTED),
    )  # fmt: skip
    yield (
        "forged_peers",
        good.bad("A MASKED_INPUT whose signature on the peers has one bit changed.", "MASKED_INPUT", party,
                 lambda p: flip(p, 0), REMOTE, GOES_ON),
    )  # fmt: skip
    yield (
        "absent_survivor",
        good.bad("An UNMASK_REQUEST that makes a survivor of a client that shared nothing.", "UNMASK_REQUEST", party,
                 lambda _: write_parties([next(p for p in session.clients if p not in (party, gone, *near))]), REMOTE,
                 ABORTED),
    )  # fmt: skip
    yield (
        "peers_left_out",
        good.bad("A SURVIVOR_PROOF without one neighbour's signature on its peers.", "SURVIVOR_PROOF", party,
                 entries(lambda e: e.pop(near[0]), 64, lists_end), REMOTE, ABORTED),
    )  # fmt: skip
    yield (
        "other_peers",
        good.bad("A SURVIVOR_PROOF with a neighbour's good signature on other peers.", "SURVIVOR_PROOF", party,
                 entries(lambda e: e.update({near[0]: elsewhere}), 64, lists_end), REMOTE, ABORTED),
    )  # fmt: skip


def _bundles(good: Forge) -> Iterator[tuple[str, Bad]]:
    bundles: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
        "empty_bundle": ("without a message", lambda p: b""),
        "overlong_part": ("whose part is longer than the bundle", lambda p: number(len(p), 8) + p[8:]),
        "huge_part": ("that claims a part of 2^64 - 1 bytes", lambda p: b"\xff" * 8 + p[8:]),
        "part_below_a_header": ("with a part too short for a header", lambda p: number(46, 8) + p[8:54]),
        "three_parts": ("with three messages", lambda p: p * 3),
        "truncated_part_size": ("that ends within a part's size", lambda p: p[:7]),
    }
    for name, (what, change) in bundles.items():
        yield name, good.bad(f"A BUNDLE {what}.", "BUNDLE", 5, change, MALFORMED, GOES_ON)
    bare = good.payload("BUNDLE", 5)[8:]
    yield (
        "message_without_bundle",
        good.raw("A message of a series that comes without a bundle.", "BUNDLE", 5, lambda _: bare, MALFORMED, GOES_ON),
    )
