"""The published vectors of the protocols, said again: every byte of good runs, and a refusal of every bad message.

A second implementation says the same bytes (``tests/slow_implementation``), so what is compared here is not this
library's own word. Vectors lie beside the packages, in the repository and in the source distribution.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from secagg import IdentityKey, PartyId, PartySecrets
from secagg.committee.messages import BOX_LABEL, CommitteeInput, box_binding
from secagg.committee.protocol import CommitteeSum
from secagg.config import SERVER
from secagg.dp.discrete_gaussian import discrete_gaussian
from secagg.entropy import InsecureSeededEntropy
from secagg.errors import SecureSumError
from secagg.layout import Layout
from secagg.masked import Assumptions, MaskedSum
from secagg.masked.series import MaskedSeries, SeriesClient, SeriesServer
from secagg.primitives.boxes import BoxKey
from secagg.primitives.identity import verifies
from secagg.primitives.sealing import SealBrokenError
from secagg.receipted_sum import ReceiptedSum, SignedBy
from secagg.sums import NO_SECRETS, SumProtocol
from secagg.wire import MessageType, Reader, message_type, payload_of

TESTS = Path(__file__).resolve().parents[2] / "tests"
OF_MASKED, OF_COMMITTEES = TESTS / "vectors", TESTS / "vectors" / "committee"

Json = dict[str, Any]
_Said = tuple[PartyId, PartyId, bytes]
"""Sender, recipient, message."""


class _OtherwiseError(Exception):
    """Something else was said than is published."""


@lru_cache(maxsize=1)
def published_are_here() -> bool:
    """Whether the vectors lie beside this installation."""
    return OF_MASKED.is_dir() and OF_COMMITTEES.is_dir()


NOISE = {
    9: "bef53708648add443b9cedef48c41ad44f4fb5c850b9a2df8dcdc9d027b755c6",
    10**6 + 7: "c5e36602d8e8351aa0da2ae6add364e6cb57cf5437bbb5dd00a75336a4bfc27b",
    2**80 + 5: "d2772a1bd3f1413479fe83d0c0469c86628ce7cb79412a7b0443afa6e9f7c91b",
}
"""SHA-256 of 2 000 draws of these variances from one seed, as little-endian int64. That they follow the law is for
tests to show (``tests/secagg/dp``); here is told that it is this sampler still."""


def wrong_draws() -> tuple[str, ...]:
    """Return the variances whose known draws come out otherwise."""
    wrong = []
    for variance, known in NOISE.items():
        drawn = discrete_gaussian(variance).draw(2_000, InsecureSeededEntropy(0, "known draws"))
        if hashlib.sha256(drawn.astype("<i8").tobytes()).hexdigest() != known:
            wrong.append(f"noise of variance {variance}")
    return tuple(wrong)


@lru_cache(maxsize=1)
def wrong_vectors() -> tuple[str, ...]:
    """Return the names of published runs that come out otherwise, and of bad messages that are not refused."""
    runs = {path.stem: json.loads(path.read_text()) for path in sorted(OF_MASKED.glob("*.json"))}
    bad = {f"bad/{path.stem}": json.loads(path.read_text()) for path in sorted((OF_MASKED / "bad").glob("*.json"))}
    committees = {path.stem: json.loads(path.read_text()) for path in sorted(OF_COMMITTEES.glob("*.json"))}
    said = {name: _is_said(_say_again, run) for name, run in runs.items()}
    refused = {name: _is_refused(one, runs[one["scenario"].removesuffix(".json")]) for name, one in bad.items()}
    helped = {name: _is_said(_help_again, run) for name, run in committees.items()}
    return tuple(name for name, is_right in {**said, **refused, **helped}.items() if not is_right)


def _is_said(again: Callable[[Json], None], run: Json) -> bool:
    try:
        again(run)
    except (SecureSumError, SealBrokenError, _OtherwiseError, ValueError, KeyError, TypeError, AssertionError):
        return False
    return True


class _Drawn:
    """Gives recorded entropy out again; then nothing more."""

    def __init__(self, drawn: str) -> None:
        self.left = bytes.fromhex(drawn)

    def __call__(self, n_bytes: int) -> bytes:
        _same(len(self.left) >= n_bytes, True)
        taken, self.left = self.left[:n_bytes], self.left[n_bytes:]
        return taken


def _same(came: object, published: object) -> None:
    if came != published:
        raise _OtherwiseError


def _secrets(run: Json, party: PartyId, **more: Any) -> PartySecrets:
    identity = run["identity_secrets"].get(str(party))
    return PartySecrets(identity=IdentityKey(bytes.fromhex(identity)) if identity else None, **more)


def masked_sum(known: Json) -> MaskedSum:
    """The masked sum that published parameters describe."""
    return MaskedSum(session_id=bytes.fromhex(known["session_id"]), **_one_sum(known), **_common(known))


def receipted_sum(known: Json) -> SumProtocol:
    """The same, with receipts where the parameters say who signs them."""
    masked = masked_sum(known)
    return ReceiptedSum(protocol=masked, signed_by=SignedBy(known["signed_by"])) if "signed_by" in known else masked


def masked_series(known: Json) -> MaskedSeries:
    """The series that published parameters describe."""
    return MaskedSeries(series_id=bytes.fromhex(known["series_id"]), **_common(known))


def _common(known: Json) -> Json:
    return {
        "clients": tuple(known["clients"]),
        "threshold": known["threshold"],
        "degree": known["degree"] or None,
        "graph_seed": bytes.fromhex(known["graph_seed"]),
        "assumptions": Assumptions(**known["assumptions"]) if known["assumptions"] else None,
        **_signers(known),
    }


def _signers(known: Json) -> Json:
    identities = tuple(map(bytes.fromhex, known["identities"]))
    return {"identities": identities, "server_identity": bytes.fromhex(known["server_identity"])}


def _one_sum(of: Json) -> Json:
    return {"layout": Layout.of(map(tuple, of["layout"])), "context": bytes.fromhex(of["context"])}


def _by_party(values: Mapping[str, Any]) -> dict[PartyId, Any]:
    return {int(party): value for party, value in values.items()}


def _sums(run: Json) -> Iterator[tuple[dict[PartyId, Any], Any, Json]]:
    """Clients' and server's sessions of each sum of a run, with what is published of it; at last no entropy is left."""
    known, entropy = run["parameters"], {party: _Drawn(drawn) for party, drawn in _by_party(run["entropy"]).items()}
    if "sums" not in run:
        protocol = receipted_sum(known)
        clients = {
            party: protocol.client(party, np.array(vector), secrets=_secrets(run, party), entropy=entropy[party])
            for party, vector in _by_party(run["vectors"]).items()
        }
        yield clients, protocol.server(secrets=_secrets(run, SERVER)), run
        _same(any(own.left for own in entropy.values()), False)
        return
    series = masked_series(known)
    members = {p: SeriesClient(series, p, secrets=_secrets(run, p), entropy=entropy[p]) for p in series.clients}
    server = SeriesServer(series, secrets=_secrets(run, SERVER))
    for one in run["sums"]:
        own = _one_sum(one)
        vectors = {party: np.array(vector) for party, vector in _by_party(one["vectors"]).items()}
        current = {p: member.begin_sum(**own, contribution=vectors[p]) for p, member in members.items()}
        yield current, server.begin_sum(**own), one
    _same(any(own.left for own in entropy.values()), False)


def _say_again(run: Json) -> None:
    """Every message of a masked run, and its total."""
    for clients, server, one in _sums(run):
        left = {party: one["messages_sent"].get(str(party), 1 << 30) for party in clients}
        said: list[_Said] = []

        def answered(party: PartyId, speak: Callable[[], bytes | None]) -> None:
            if left[party] and (answer := speak()) is not None:  # noqa: B023  (called in here)
                left[party] -= 1  # noqa: B023
                said.append((party, SERVER, answer))  # noqa: B023
                server.receive(party, answer)  # noqa: B023

        for party, client in sorted(clients.items()):
            answered(party, client.start)
        while server.result is None and (asked := server.close_round()):
            said += [(SERVER, party, request) for party, request in sorted(asked.items())]
            for party, request in sorted(asked.items()):
                answered(party, lambda party=party, request=request: clients[party].receive(request))  # type: ignore[misc]  # noqa: B023
        _same(said, _messages(one))
        _same((server.result.total.tolist(), list(server.result.survivors)), (one["total"], one["survivors"]))


def _messages(one: Json) -> list[_Said]:
    return [(line["sender"], line["recipient"], bytes.fromhex(line["message"])) for line in one["messages"]]


def _is_refused(bad: Json, run: Json) -> bool:
    """Whether a bad message is refused where it comes, or where the round that it spoils closes."""
    clients, server, one = next(_sums(run))
    said, place, later = _messages(one), bad["delivered"], bad["refused_when"] != "received"
    message, session = bytes.fromhex(bad["message"] or ""), clients.get(bad["recipient"])
    try:
        if session is not None:
            session.start()
            for request in (text for _, recipient, text in said[:place] if recipient == bad["recipient"]):
                session.receive(request)
        else:  # what the server itself would say next, it says first
            _hear(server, said[: place + (not later and said[place][0] == SERVER)])
    except (SecureSumError, LookupError):
        return False  # it did not come so far
    try:
        if session is not None:
            session.receive(message)
        elif message:
            server.receive(bad["sender"], message)
            rest = said[place + 1 :] if later else []
            _hear(server, rest if bad["refused_when"] == "sum ends" else _of_this_round(rest))
        if later:
            server.close_round()
    except SecureSumError:
        return True
    return False


def _of_this_round(said: list[_Said]) -> list[_Said]:
    end = next((place for place, (sender, _, _) in enumerate(said) if sender == SERVER), len(said))
    return said[:end]


def _hear(server: Any, said: list[_Said]) -> None:
    """Give a server what clients said; where it spoke itself its round is closed."""
    waiting = False
    for sender, _, message in said:
        if sender == SERVER:
            if not waiting:
                server.close_round()
            waiting = True
        else:
            server.receive(sender, message)
            waiting = False


def _help_again(run: Json) -> None:
    """A committee's run: what clients say, with their boxes opened, and all that server and helpers say."""
    known, said = run["parameters"], _messages(run)
    config = CommitteeSum(
        session_id=bytes.fromhex(known["session_id"]),
        helper_keys=tuple((party, bytes.fromhex(key)) for party, key in _by_party(known["helper_keys"]).items()),
        min_survivors=known["min_survivors"],
        corrupt_helpers=known["corrupt_helpers"],
        helper_identities=tuple((p, bytes.fromhex(key)) for p, key in _by_party(known["helper_identities"]).items()),
        **_one_sum(known),
        clients=tuple(known["clients"]),
        **_signers(known),
    )
    keys = {party: BoxKey(bytes.fromhex(secret)) for party, secret in _by_party(run["helper_secrets"]).items()}
    signer = IdentityKey(bytes.fromhex(run["server_secret"])) if run["server_secret"] else None
    helpers = {p: config.helper(p, secrets=_secrets(run, p, boxes=key)) for p, key in keys.items()}
    server: Any = config.server(secrets=PartySecrets(identity=signer) if signer else NO_SECRETS)
    for party, _, message in said:
        if party in config.clients:
            rows = bytes.fromhex(run["rows"][str(party)])
            secrets = _secrets(run, party, rows=(lambda rows=rows: rows) if signer else None)
            vector, entropy = np.array(run["vectors"][str(party)]), _Drawn(run["entropy"][str(party)])
            upload = config.client(party, vector, secrets=secrets, entropy=entropy).start()
            _same(_content(config, party, upload or b"", keys), _content(config, party, message, keys))
            _same(entropy.left, b"")
    asked: dict[PartyId, bytes] = {}
    answers: dict[PartyId, bytes] = {}
    for sender, recipient, message in said:
        if sender != SERVER:
            if sender in helpers:
                _same(answers.pop(sender), message)
            server.receive(sender, message)
            continue
        if not asked and "failure" in run and message_type(message) is MessageType.SURVIVOR_SET:
            server = config.failure(secrets=PartySecrets(identity=signer))
            asked = dict(server.requests())
        asked = asked or dict(server.close_round())
        _same(asked.pop(recipient), message)
        if recipient not in run["silent"]:
            answers[recipient] = helpers[recipient].receive(message) or b""
    if "failure" in run:
        _same(server.proof.hex(), run["failure"])
        return
    server.close_round()
    _same((server.result.total.tolist(), list(server.result.survivors)), (run["total"], run["survivors"]))


def _content(config: CommitteeSum, party: PartyId, message: bytes, keys: Mapping[PartyId, BoxKey]) -> object:
    """What an upload says: its boxes opened, since each is another one every time, and whether they are signed."""
    upload = CommitteeInput.read(Reader(memoryview(payload_of(message)), peer=party), config)
    boxes = {p: keys[p].open(box, BOX_LABEL, box_binding(config.digest, party, p)) for p, box in upload.boxes.items()}
    said = upload.entry(config.helpers[0]).said(config.digest, party)
    signed = config.is_authenticated and verifies(config.identity_of(party), upload.signature, said)
    return boxes, upload.commitments, upload.vector, signed
