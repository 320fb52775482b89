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
Change = Callable[[bytes], bytes]


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

    def with_payload(self, message: bytes, change: Change) -> bytes:
        """The message with another payload, signed by its sender where messages are: it is the sender that lies."""
        type_, digest, parties = message[5], message[6:38], message[38:46]
        sender, recipient = int.from_bytes(parties[:4], "big"), int.from_bytes(parties[4:], "big")
        payload = change(message[HEADER : len(message) - message[HEADER - 1]])
        secret = bytes.fromhex(self.scenario["identity_secrets"].get(str(sender), ""))
        return write_frame(type_, digest, sender, recipient, payload, secret)

    def bad(
        self, name: str, about: str, type_: str, party: int, change: Change, *outcome: str, **more: Any
    ) -> tuple[str, Bad]:
        """As ``raw``, with another payload."""
        return self.raw(name, about, type_, party, lambda m: self.with_payload(m, change), *outcome, **more)

    def raw(
        self,
        name: str,
        about: str,
        type_: str,
        party: int,
        change: Change,
        error: str,
        afterwards: str,
        *,
        after: int = 0,
        when: str = "received",
    ) -> tuple[str, Bad]:
        """The name, and the message of this type from or to this client, changed; ``after``: that much later."""
        at = self.find(type_, party)
        original = self.messages[at]
        return name, {
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


# fmt: off
# One fault a statement: what it is, of which message, and what whoever gets it must do.


def _frames(good: Forge) -> Iterator[tuple[str, Bad]]:
    foreign = Session.of({**good.scenario["parameters"], "session_id": "ee" * 16}).setup_digest
    to_client, to_server = ("ROSTER", 5), ("SEALED_SHARES", 5)
    changes: dict[str, tuple[str, Change]] = {
        "foreign_session": ("of another session id", lambda m: m[:6] + foreign + m[38:]),
        "wrong_magic": ("with another magic", lambda m: b"GGAS" + m[4:]),
        "wrong_version": ("of version 7", lambda m: m[:4] + b"\7" + m[5:]),
        "old_version": ("of version 5", lambda m: m[:4] + b"\5" + m[5:]),
        "needless_signature": ("with a signature where nobody signs", lambda m: m[:46] + b"\x40" + m[47:] + bytes(64)),
        "unknown_type": ("of a type that does not exist", lambda m: m[:5] + b"\xff" + m[6:]),
        "wrong_sender": ("that names another sender", lambda m: m[:38] + number(9) + m[42:]),
        "wrong_recipient": ("that names another recipient", lambda m: m[:42] + number(9) + m[46:]),
        "truncated_header": ("cut within its header", lambda m: m[:46]),
    }
    for name, (what, change) in changes.items():
        yield good.raw(f"{name}_to_client", f"A ROSTER {what}.", *to_client, change, MALFORMED, GOES_ON)
        yield good.raw(f"{name}_to_server", f"A SEALED_SHARES {what}.", *to_server, change, MALFORMED, GOES_ON)
    same = bytes
    yield good.raw("replayed_roster", "A ROSTER that was answered.", *to_client, same, REPEATED, GOES_ON, after=1)
    yield good.raw("replayed_shares", "A SEALED_SHARES that was taken.", *to_server, same, REPEATED, GOES_ON, after=1)
    early = write_frame(Type.UNMASK_REQUEST, bytes.fromhex(good.scenario["digest"]), 0, 5, number(0))
    yield good.raw("request_before_input", "An UNMASK_REQUEST when a ROSTER is due.", *to_client, lambda _: early,
                   REMOTE, ABORTED)
    yield good.raw("shares_in_next_round", "A late SEALED_SHARES of a client that has one in.", *to_server, same,
                   REMOTE, GOES_ON, after=8)


def _lists(good: Forge) -> Iterator[tuple[str, Bad]]:
    def unsorted(payload: bytes) -> bytes:
        size = (len(payload) - 4) // 2
        return payload[:4] + payload[4 + size :] + payload[4 : 4 + size]

    def repeated(payload: bytes) -> bytes:
        size = (len(payload) - 4) // 2
        return payload[: 4 + size] + payload[4 : 4 + size]

    lists: dict[str, tuple[str, Change]] = {
        "unsorted_entries": ("whose entries descend", unsorted),
        "repeated_entry": ("with one entry twice", repeated),
        "missing_entry": ("that counts one entry more than it has", lambda p: number(3) + p[4:]),
        "huge_count": ("that counts 2^32 - 1 entries", lambda p: b"\xff" * 4 + p[4:]),
        "excess_bytes": ("with a byte too many", lambda p: p + b"\0"),
        "empty_payload": ("without payload", lambda p: b""),
    }
    for name, (what, change) in lists.items():
        yield good.bad(name, f"A ROSTER {what}.", "ROSTER", 5, change, MALFORMED, ABORTED)


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
    yield signed.bad("forged_key_signature", "A ROSTER in which one masking key was changed.", "ROSTER", 2,
                     entries(swap_keys, 128), REMOTE, ABORTED)
    yield signed.raw("forged_signature", "A MASKED_INPUT whose signature was changed.", "MASKED_INPUT", 2, flip,
                     MALFORMED, GOES_ON)
    yield signed.raw("changed_masked_input", "A MASKED_INPUT with one bit of its vector changed.", "MASKED_INPUT", 2,
                     lambda m: flip(m, HEADER), MALFORMED, GOES_ON)
    yield signed.raw("changed_request", "An UNMASK_REQUEST with one bit changed.", "UNMASK_REQUEST", 2,
                     lambda m: flip(m, HEADER + 3), MALFORMED, GOES_ON)
    yield signed.raw("missing_signature", "A MASKED_INPUT without a signature where everybody signs.", "MASKED_INPUT",
                     2, lambda m: m[:46] + b"\0" + m[47:-SIGNATURE], MALFORMED, GOES_ON)
    yield signed.raw("cut_signature", "A message that ends within its signature.", "MASKED_INPUT", 2,
                     lambda m: m[:HEADER] + m[-63:], MALFORMED, GOES_ON)
    yield signed.raw("signed_by_another", "A MASKED_INPUT that another client signed.", "MASKED_INPUT", 2,
                     lambda m: m[:-SIGNATURE] + signed.message("MASKED_INPUT", 5)[-SIGNATURE:], MALFORMED, GOES_ON)
    yield signed.raw("malleable_signature", "ADVERTISED_KEYS whose signature has S + L for S.", "ADVERTISED_KEYS", 2,
                     lambda m: m[:-32] + (int.from_bytes(m[-32:], "little") + L).to_bytes(32, "little"), MALFORMED,
                     GOES_ON)
    yield good.bad("repeated_key_in_roster", "A ROSTER with the same keys for two clients.", "ROSTER", 5,
                   entries(repeat_keys, 64), REMOTE, ABORTED)
    yield good.bad("own_key_in_roster", "A ROSTER that gives a peer the client's own sealing key.", "ROSTER", 5,
                   entries(lambda e: e.update({2: own[:32] + e[2][32:]}), 64), REMOTE, ABORTED)
    yield good.bad("stranger_in_roster", "A ROSTER with a party outside the cohort.", "ROSTER", 5, entries(rename, 64),
                   REMOTE, ABORTED)
    yield good.bad("self_in_roster", "A ROSTER that lists its own recipient.", "ROSTER", 5,
                   entries(lambda e: e.update({5: e.pop(9)}), 64), REMOTE, ABORTED)
    party = sparse.scenario["parameters"]["clients"][0]
    near = set(sparse.scenario["neighbours"][str(party)])
    far = min(set(sparse.scenario["parameters"]["clients"]) - near - {party})
    yield sparse.bad("no_neighbour_in_roster", "A ROSTER with a client of the cohort that is no neighbour.", "ROSTER",
                     party, entries(lambda e: e.update({far: bytes(range(64))}), 64), REMOTE, ABORTED)
    yield good.bad("too_short_roster", "A ROSTER with fewer clients than the threshold needs.", "ROSTER", 5,
                   entries(dict.clear, 64), REMOTE, ABORTED)
    yield good.bad("small_order_key_in_roster", "A ROSTER with a sealing key of small order.", "ROSTER", 5,
                   entries(lambda e: e.update({2: low_order + e[2][32:]}), 64), REMOTE, ABORTED)
    yield good.bad("small_order_key", "ADVERTISED_KEYS with a masking key of small order.", "ADVERTISED_KEYS", 5,
                   lambda p: p[:32] + low_order, REMOTE, GOES_ON)
    yield good.bad("small_order_key_not_reduced",
                   "ADVERTISED_KEYS with p + 1, a masking key of small order in a form that is not reduced.",
                   "ADVERTISED_KEYS", 5, lambda p: p[:32] + (P + 1).to_bytes(32, "little"), REMOTE, GOES_ON)
    yield good.bad("twin_key", "ADVERTISED_KEYS with the bit set that X25519 ignores: a second name for the same key.",
                   "ADVERTISED_KEYS", 5, lambda p: p[:63] + bytes([p[63] | 0x80]), REMOTE, GOES_ON)
    yield good.bad("repeated_key", "ADVERTISED_KEYS with another client's keys.", "ADVERTISED_KEYS", 5, lambda _: taken,
                   REMOTE, GOES_ON)
    yield good.bad("one_key_for_both", "ADVERTISED_KEYS with one key for both purposes.", "ADVERTISED_KEYS", 5,
                   lambda p: p[:32] * 2, REMOTE, GOES_ON)


def _shares(good: Forge, sparse: Forge) -> Iterator[tuple[str, Bad]]:
    def lengthen(listed: dict[int, bytes]) -> None:
        listed[9] = listed[9] + b"\0"

    yield good.bad("swapped_sealed_share", "A SHARE_DELIVERY in which two clients' boxes changed places.",
                   "SHARE_DELIVERY", 5, entries(swap_contents, SEALED_BYTES), REMOTE, ABORTED)
    yield good.bad("changed_sealed_share", "A SHARE_DELIVERY with one bit changed.", "SHARE_DELIVERY", 5, flip, REMOTE,
                   ABORTED)
    yield good.bad("shares_of_a_stranger", "A SHARE_DELIVERY from a party outside the roster.", "SHARE_DELIVERY", 5,
                   entries(lambda e: e.update({7: e.pop(9)}), SEALED_BYTES), REMOTE, ABORTED)
    yield good.bad("too_few_shares_delivered", "A SHARE_DELIVERY from fewer clients than the threshold needs.",
                   "SHARE_DELIVERY", 5, entries(dict.clear, SEALED_BYTES), REMOTE, ABORTED)
    yield good.bad("shares_left_out", "SEALED_SHARES that leave a client of the roster out.", "SEALED_SHARES", 5,
                   entries(lambda e: e.pop(2), SEALED_BYTES, 32), REMOTE, GOES_ON)
    yield good.bad("shares_for_a_stranger", "SEALED_SHARES with a box for a party outside the cohort.", "SEALED_SHARES",
                   5, entries(lambda e: e.update({7: bytes(SEALED_BYTES)}), SEALED_BYTES, 32), REMOTE, GOES_ON)
    yield good.bad("long_box", "SEALED_SHARES with a box one byte too long.", "SEALED_SHARES", 5,
                   entries(lengthen, SEALED_BYTES, 32), MALFORMED, GOES_ON)


def _inputs(good: Forge) -> Iterator[tuple[str, Bad]]:
    yield good.bad("truncated_masked_input", "A MASKED_INPUT one byte short.", "MASKED_INPUT", 5, lambda p: p[:-1],
                   MALFORMED, GOES_ON)
    yield good.bad("long_masked_input", "A MASKED_INPUT one byte too long.", "MASKED_INPUT", 5, lambda p: p + b"\0",
                   MALFORMED, GOES_ON)
    yield good.raw("input_of_another_layout", "A MASKED_INPUT bound to the set-up's digest.", "MASKED_INPUT", 5,
                   lambda m: m[:6] + bytes.fromhex(good.scenario["setup_digest"]) + m[38:], MALFORMED, GOES_ON)


def _rounds(good: Forge) -> Iterator[tuple[str, Bad]]:
    for type_ in ("ADVERTISED_KEYS", "SEALED_SHARES", "MASKED_INPUT", "UNMASK_SHARES"):
        name, short = good.raw(f"too_few_{type_.lower()}", f"A round of {type_} that closes after one answer.",
                               type_, 2, bytes, "TooFewSurvivorsError", ABORTED, after=1, when="round closes")
        yield name, {**short, "message": None}
    yield good.bad("total_out_of_bounds",
                   "A MASKED_INPUT with the highest bit of its first entry changed, so that the total leaves its "
                   "bound.",
                   "MASKED_INPUT", 5, lambda p: p[:1] + bytes([p[1] ^ 0x80]) + p[2:], "SumOutOfBoundsError", ABORTED,
                   when="sum ends")


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
    }
    requests = {
        "unmask_overlap": ("the client that it asks", [5]),
        "stranger_among_dropouts": ("a party outside the cohort", [7]),
        "too_few_survivors": ("so many dropouts that a total would hold too few", [2, 9]),
    }
    for name, (what, dropouts) in requests.items():
        listed = write_parties(dropouts)
        yield good.bad(name, f"An UNMASK_REQUEST that names {what}.", "UNMASK_REQUEST", 5, lambda _, b=listed: b,
                       REMOTE, ABORTED)
    yield signed.bad("forged_survivor_signature", "A SURVIVOR_SIGNATURE with one bit changed.", "SURVIVOR_SIGNATURE",
                     party, flip, REMOTE, GOES_ON)
    yield signed.bad("signature_of_another_client", "A SURVIVOR_SIGNATURE that another client made.",
                     "SURVIVOR_SIGNATURE", party, lambda _: signed.payload("SURVIVOR_SIGNATURE", 5), REMOTE, GOES_ON)
    yield signed.bad("equivocated_survivors",
                     "A SURVIVOR_PROOF of good signatures on another survivor set than this client was told.",
                     "SURVIVOR_PROOF", party, lambda _: write_entries(equivocated), REMOTE, ABORTED)
    yield signed.bad("forged_survivor_proof", "A SURVIVOR_PROOF with one bit changed.", "SURVIVOR_PROOF", party, flip,
                     REMOTE, ABORTED)
    yield signed.bad("too_few_signatures", "A SURVIVOR_PROOF with one signature less than needed.", "SURVIVOR_PROOF",
                     party, entries(dict.popitem, 64), REMOTE, ABORTED)
    yield signed.bad("signature_of_a_dropout", "A SURVIVOR_PROOF with a signature of a dropout.", "SURVIVOR_PROOF",
                     party, entries(lambda e: e.update({named[0]: e.pop(max(e))}), 64), REMOTE, ABORTED)
    yield signed.bad("request_instead_of_proof", "A second, other UNMASK_REQUEST when a SURVIVOR_PROOF is due.",
                     "UNMASK_REQUEST", party, lambda _: write_parties(other), REMOTE, ABORTED, after=1)


def _silent_survivor(good: Forge) -> Iterator[tuple[str, Bad]]:
    yield good.bad("silent_survivor", "An UNMASK_REQUEST that makes a survivor of a client that shared no secrets.",
                   "UNMASK_REQUEST", 4, lambda _: write_parties([]), REMOTE, ABORTED)


def _unmasking(good: Forge, dropping: Forge, tight: Forge) -> Iterator[tuple[str, Bad]]:
    gone = min(Cursor(dropping.payload("UNMASK_SHARES", 4)).entries(33))
    not_in_field = entries(lambda e: e.update({1: number(PRIME, 33)}), 33, 4)
    yield dropping.bad("both_secrets_of_one", "UNMASK_SHARES with shares of both secrets of a dropout.",
                       "UNMASK_SHARES", 4,
                       lambda p: p[:41] + entries(lambda e: e.update({gone: bytes(33)}), 33)(p[41:]), REMOTE, GOES_ON)
    yield dropping.bad("self_mask_of_a_dropout", "UNMASK_SHARES with a dropout's share among the self-masks.",
                       "UNMASK_SHARES", 4,
                       lambda p: number(0) + entries(lambda e: e.update({gone: p[8:41]}), 33)(p[41:]), REMOTE, GOES_ON)
    yield good.bad("share_left_out", "UNMASK_SHARES without the sender's own share.", "UNMASK_SHARES", 5,
                   entries(lambda e: e.pop(5), 33, 4), REMOTE, GOES_ON)
    yield tight.bad("wrong_share", "UNMASK_SHARES with one bit of a share changed, where no share is to spare.",
                    "UNMASK_SHARES", 1, flip, REMOTE, ABORTED, when="round closes")
    yield dropping.bad("wrong_mask_key_share", "UNMASK_SHARES with one bit of a share of a dropout's mask key changed.",
                       "UNMASK_SHARES", 1, lambda p: flip(p, 40), REMOTE, ABORTED, when="round closes")
    yield tight.bad("share_outside_field", "UNMASK_SHARES with p itself for a share, where none is to spare.",
                    "UNMASK_SHARES", 1, not_in_field, REMOTE, ABORTED, when="round closes")
    yield good.bad("truncated_shares", "UNMASK_SHARES one byte short.", "UNMASK_SHARES", 5, lambda p: p[:-1], MALFORMED,
                   GOES_ON)


def _peers(good: Forge) -> Iterator[tuple[str, Bad]]:
    party, gone = 201, 204
    session = Session.of(good.scenario["parameters"])
    near = [peer for peer in session.neighbours(party) if peer != gone]
    lists_end = 4 + 68 * session.signatures_needed
    elsewhere = ed25519_sign(
        bytes.fromhex(good.scenario["identity_secrets"][str(near[0])]), peers_statement(session, [])
    )
    yield good.bad("short_delivery",
                   "A SHARE_DELIVERY that leaves out a neighbour which it does not name among the absent.",
                   "SHARE_DELIVERY", party, entries(lambda e: e.pop(near[0]), SEALED_BYTES, 8), REMOTE, ABORTED)
    yield good.bad("absent_but_here", "A SHARE_DELIVERY that names a neighbour among the absent and brings its shares.",
                   "SHARE_DELIVERY", party, lambda p: write_parties(sorted([gone, near[0]])) + p[8:], REMOTE, ABORTED)
    yield good.bad("forged_peers", "A MASKED_INPUT whose signature on the peers has one bit changed.", "MASKED_INPUT",
                   party, lambda p: flip(p, 0), REMOTE, GOES_ON)
    yield good.bad("absent_survivor", "An UNMASK_REQUEST that makes a survivor of a client that shared nothing.",
                   "UNMASK_REQUEST", party,
                   lambda _: write_parties([next(p for p in session.clients if p not in (party, gone, *near))]), REMOTE,
                   ABORTED)
    yield good.bad("peers_left_out", "A SURVIVOR_PROOF without one neighbour's signature on its peers.",
                   "SURVIVOR_PROOF", party, entries(lambda e: e.pop(near[0]), 64, lists_end), REMOTE, ABORTED)
    yield good.bad("other_peers", "A SURVIVOR_PROOF with a neighbour's good signature on other peers.",
                   "SURVIVOR_PROOF", party, entries(lambda e: e.update({near[0]: elsewhere}), 64, lists_end), REMOTE,
                   ABORTED)


def _bundles(good: Forge) -> Iterator[tuple[str, Bad]]:
    bundles: dict[str, tuple[str, Change]] = {
        "empty_bundle": ("without a message", lambda p: b""),
        "overlong_part": ("whose part is longer than the bundle", lambda p: number(len(p), 8) + p[8:]),
        "huge_part": ("that claims a part of 2^64 - 1 bytes", lambda p: b"\xff" * 8 + p[8:]),
        "part_below_a_header": ("with a part too short for a header", lambda p: number(46, 8) + p[8:54]),
        "three_parts": ("with three messages", lambda p: p * 3),
        "truncated_part_size": ("that ends within a part's size", lambda p: p[:7]),
    }
    for name, (what, change) in bundles.items():
        yield good.bad(name, f"A BUNDLE {what}.", "BUNDLE", 5, change, MALFORMED, GOES_ON)
    bare = good.payload("BUNDLE", 5)[8:]
    yield good.raw("message_without_bundle", "A message of a series that comes without a bundle.", "BUNDLE", 5,
                   lambda _: bare, MALFORMED, GOES_ON)
