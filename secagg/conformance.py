"""Conformance tests: replay the published test vectors, both good runs and messages that must be refused.

A vector is a JSON file with the public parameters, the secrets, the entropy and all messages of one run
(``tests/vectors/README.md`` of the repository describes the format). The package contains some of the vectors. A second
implementation without shared code gives the same bytes (``tests/slow_implementation``).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secagg.committee.messages import BOX_LABEL, CommitteeInput, box_binding
from secagg.committee.protocol import CommitteeSum
from secagg.config import SERVER
from secagg.errors import LocalProtocolError, MalformedMessageError, SecureSumError
from secagg.layout import Layout
from secagg.masked.assumptions import Assumptions
from secagg.masked.client import MaskedClient
from secagg.masked.protocol import MaskedSum
from secagg.masked.series import MaskedSeries, SeriesClient, SeriesServer
from secagg.masked.states import ClientState
from secagg.mean import MeanSpec
from secagg.primitives.boxes import BoxKey
from secagg.primitives.identity import IdentityKey, verifies
from secagg.primitives.sealing import SealBrokenError
from secagg.receipted_sum import ReceiptedSum, SignedBy
from secagg.sessions import PartyId, SumResult
from secagg.sums import NO_SECRETS, PartySecrets, SumProtocol
from secagg.wire import MessageType, Reader, message_type, payload_of

SHIPPED = Path(__file__).resolve().parent / "vectors"
"""Copies of some of the published vectors, for installations without the tests."""

Json = dict[str, Any]
Sum = tuple[dict[PartyId, Any], Any, Json]
"""Sessions of clients and server of one sum, and its published data."""

Message = tuple[PartyId, PartyId, bytes]
"""Sender, recipient, bytes."""


class ConformanceError(Exception):
    """The library gives another result than the published one."""


def differences(folder: Path = SHIPPED) -> dict[str, str]:
    """Replay all vectors of a folder.

    Args:
        folder: good runs; bad messages in its folder ``bad``, committee runs in ``committee``, means in ``mean``.

    Returns:
        The reason for each vector that is not reproduced, by its path without suffix.
    """
    runs = _read(folder)
    checks: dict[str, Callable[[], None]] = {name: lambda run=run: check_run(run) for name, run in runs.items()}  # type: ignore[misc]
    for name, bad in _read(folder / "bad").items():
        run = runs[bad["scenario"].removesuffix(".json")]
        checks[f"bad/{name}"] = lambda bad=bad, run=run: check_bad_message(bad, run)  # type: ignore[misc]
    for name, run in _read(folder / "committee").items():
        checks[f"committee/{name}"] = lambda run=run: check_committee_run(run)  # type: ignore[misc]
    for name, run in _read(folder / "mean").items():
        checks[f"mean/{name}"] = lambda run=run: check_mean(run)  # type: ignore[misc]
    found = {}
    for name, check in checks.items():
        try:
            check()
        except (ConformanceError, SecureSumError, SealBrokenError, ValueError, LookupError, TypeError) as error:
            found[name] = f"{type(error).__name__}: {error}"
    return found


def count(folder: Path = SHIPPED) -> int:
    """Return the number of vectors in a folder."""
    return len(list(folder.rglob("*.json")))


def _read(folder: Path) -> dict[str, Json]:
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))}


def check_run(run: Json) -> None:
    """Replay a masked sum or a series: every message, digest, receipt and total.

    Raises:
        ConformanceError: the result differs from the published one.
    """
    for clients, server, one in _sums(run):
        _same("messages", _exchanged(clients, server, one["messages_sent"]), _messages(one))
        _same("total", (server.result.total.tolist(), list(server.result.survivors)), (one["total"], one["survivors"]))
        if "receipt" in one:
            _same("receipt", server.receipt.to_bytes().hex(), one["receipt"])


def check_bad_message(bad: Json, run: Json) -> None:
    """Deliver a bad message within the run that it belongs to.

    Args:
        bad: the message, its place in the run, the expected error, and whether the session continues.
        run: the good run.

    Raises:
        ConformanceError: the message is accepted or refused with another error, or the session continues wrongly.
    """
    clients, server, one = next(_sums(run))
    playback = _Playback(clients, server, _messages(one))
    playback.advance(bad["delivered"])
    try:
        _deliver(playback, bad)
    except SecureSumError as error:
        _same("error", type(error).__name__, bad["error"])
    else:
        raise ConformanceError("the message is accepted")
    if bad["afterwards"] == "goes on":
        playback.finish()
        _same("total", (server.result.total.tolist(), list(server.result.survivors)), (one["total"], one["survivors"]))
        return
    try:
        if bad["recipient"]:
            client: MaskedClient = clients[bad["recipient"]]
            _same("state", client.state, ClientState.ABORTED)
            client.receive(playback.messages[bad["delivered"]][2])
        else:
            _same("result", server.result, None)
            server.close_round()
    except (LocalProtocolError, MalformedMessageError):
        return
    raise ConformanceError("the session goes on, and must be aborted")


def _deliver(playback: _Playback, bad: Json) -> None:
    """Deliver the bad message, and close the rounds that reveal its fault."""
    message = None if bad["message"] is None else bytes.fromhex(bad["message"])
    if message is not None and bad["refused_when"] == "received":
        if bad["recipient"]:
            playback.clients[bad["recipient"]].receive(message)
        else:
            playback.open_round()
            playback.server.receive(bad["sender"], message)
        return
    if message is not None:
        playback.replace_next(message)
    if bad["refused_when"] == "sum ends":
        playback.finish()
    if message is not None:
        playback.advance(playback.end_of_round())
    playback.server.close_round()


def _exchanged(clients: Mapping[PartyId, Any], server: Any, messages_sent: Mapping[str, int]) -> list[Message]:
    """Run all sessions and return the messages in order: in each round clients first, ascending, then the server."""
    left = {party: messages_sent.get(str(party), 1 << 30) for party in clients}
    exchanged: list[Message] = []

    def upload(party: PartyId, answer: Callable[[], bytes | None]) -> None:
        message = answer() if left[party] else None
        if message is not None:
            left[party] -= 1
            exchanged.append((party, SERVER, message))
            server.receive(party, message)

    for party, client in sorted(clients.items()):
        upload(party, client.start)
    while server.result is None and (requests := server.close_round()):
        exchanged += [(SERVER, party, request) for party, request in sorted(requests.items())]
        for party, request in sorted(requests.items()):
            upload(party, lambda party=party, request=request: clients[party].receive(request))  # type: ignore[misc]
    return exchanged


class _Playback:
    """Delivery of recorded messages, one by one; each is compared with the message that its sender sends."""

    def __init__(self, clients: Mapping[PartyId, Any], server: Any, messages: list[Message]) -> None:
        self.clients, self.server, self.messages = clients, server, messages
        self._place = 0
        self._answers = {
            party: clients[party].start() for party in sorted({sender for sender, _, _ in messages if sender})
        }
        self._requests: dict[PartyId, bytes] = {}

    def advance(self, place: int) -> None:
        """Deliver the messages before this place."""
        while self._place < place:
            sender, recipient, message = self.messages[self._place]
            self.open_round()
            if sender:
                _same("message", self._answers.pop(sender), message)
                self.server.receive(sender, message)
            else:
                _same("message", self._requests.pop(recipient), message)
                if any(sender == recipient for sender, _, _ in self.messages[self._place :]):  # it has not vanished
                    self._answers[recipient] = self.clients[recipient].receive(message)
            self._place += 1

    def open_round(self) -> None:
        """Close the clients' round if the server sends the next message."""
        if self._place < len(self.messages) and self.messages[self._place][0] == SERVER and not self._requests:
            self._requests = dict(self.server.close_round())

    def replace_next(self, message: bytes) -> None:
        """Deliver another message to the server instead of the next one."""
        sender, _, _ = self.messages[self._place]
        self.server.receive(sender, message)
        del self._answers[sender]
        self._place += 1

    def end_of_round(self) -> int:
        """Return the place of the server's next message."""
        places = range(self._place, len(self.messages))
        return next((place for place in places if self.messages[place][0] == SERVER), len(self.messages))

    def finish(self) -> None:
        """Deliver the rest and close the last round."""
        self.advance(len(self.messages))
        _same("requests after the last round", dict(self.server.close_round()), {})


def _sums(run: Json) -> Iterator[Sum]:
    """Yield the sums of a run; at the end all recorded entropy must have been used."""
    known, entropy = run["parameters"], {party: _Recorded(drawn) for party, drawn in _by_party(run["entropy"]).items()}
    if "sums" in run:
        yield from _sums_of_series(run, entropy)
    else:
        masked, protocol = masked_sum(known), receipted_sum(known)
        _same("digests", (masked.digest.hex(), masked.setup_digest.hex()), (run["digest"], run["setup_digest"]))
        neighbours = {party: list(masked.neighbours(party)) for party in masked.clients}
        _same("neighbours", neighbours, _by_party(run["neighbours"]))
        clients = {
            party: protocol.client(party, np.array(vector), secrets=_secrets(run, party), entropy=entropy[party])
            for party, vector in _by_party(run["vectors"]).items()
        }
        yield clients, protocol.server(secrets=_secrets(run, SERVER)), run
    _same("entropy left", [party for party, own in entropy.items() if own.left], [])


def _sums_of_series(run: Json, entropy: Mapping[PartyId, _Recorded]) -> Iterator[Sum]:
    series = masked_series(run["parameters"])
    _same("digest", series.digest.hex(), run["digest"])
    members = {p: SeriesClient(series, p, secrets=_secrets(run, p), entropy=entropy[p]) for p in series.clients}
    server = SeriesServer(series, secrets=_secrets(run, SERVER))
    for one in run["sums"]:
        own = _of_one_sum(one)
        vectors = {party: np.array(vector) for party, vector in _by_party(one["vectors"]).items()}
        clients = {p: member.begin_sum(**own, client_input=vectors[p]) for p, member in members.items()}
        yield clients, server.begin_sum(**own), one


def masked_sum(known: Json) -> MaskedSum:
    """Create the masked sum with published parameters."""
    return MaskedSum(session_id=bytes.fromhex(known["session_id"]), **_of_one_sum(known), **_of_masked(known))


def receipted_sum(known: Json) -> SumProtocol:
    """Create the sum with published parameters, with receipts if these include ``signed_by``."""
    masked = masked_sum(known)
    return ReceiptedSum(protocol=masked, signed_by=SignedBy(known["signed_by"])) if "signed_by" in known else masked


def masked_series(known: Json) -> MaskedSeries:
    """Create the series with published parameters."""
    return MaskedSeries(series_id=bytes.fromhex(known["series_id"]), **_of_masked(known))


def committee_sum(known: Json) -> CommitteeSum:
    """Create the committee sum with published parameters."""
    keys, identities = _by_party(known["helper_keys"]), _by_party(known["helper_identities"])
    return CommitteeSum(
        session_id=bytes.fromhex(known["session_id"]),
        helper_keys=tuple((party, bytes.fromhex(key)) for party, key in keys.items()),
        min_survivors=known["min_survivors"],
        corrupt_helpers=known["corrupt_helpers"],
        helper_identities=tuple((party, bytes.fromhex(key)) for party, key in identities.items()),
        clients=tuple(known["clients"]),
        **_of_one_sum(known),
        **_signers(known),
    )


def _of_masked(known: Json) -> Json:
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


def _of_one_sum(known: Json) -> Json:
    return {"layout": Layout.of(map(tuple, known["layout"]), sum_fits=True), "context": bytes.fromhex(known["context"])}


def _secrets(run: Json, party: PartyId, **more: Any) -> PartySecrets:
    identity = run["identity_secrets"].get(str(party))
    return PartySecrets(identity=IdentityKey(bytes.fromhex(identity)) if identity else None, **more)


def check_committee_run(run: Json) -> None:
    """Replay a committee sum: the clients' uploads, and all messages of server and helpers.

    Encryption is randomised by the library, so boxes are compared by their decrypted content.

    Raises:
        ConformanceError: the result differs from the published one.
    """
    config = committee_sum(run["parameters"])
    keys = {party: BoxKey(bytes.fromhex(secret)) for party, secret in _by_party(run["helper_secrets"]).items()}
    signer = IdentityKey(bytes.fromhex(run["server_secret"])) if run["server_secret"] else None
    helpers = {party: config.helper(party, secrets=_secrets(run, party, boxes=key)) for party, key in keys.items()}
    server: Any = config.server(secrets=PartySecrets(identity=signer) if signer else NO_SECRETS)
    for party, _, message in _messages(run):
        if party in config.clients:
            rows = bytes.fromhex(run["rows"][str(party)])
            secrets = _secrets(run, party, data_fingerprint=(lambda rows=rows: rows) if signer else None)
            vector, entropy = np.array(run["vectors"][str(party)]), _Recorded(run["entropy"][str(party)])
            upload = config.client(party, vector, secrets=secrets, entropy=entropy).start()
            _same("upload", _opened(config, party, upload or b"", keys), _opened(config, party, message, keys))
            _same("entropy left", entropy.left, b"")
    requests: dict[PartyId, bytes] = {}
    answers: dict[PartyId, bytes] = {}
    for sender, recipient, message in _messages(run):
        if sender != SERVER:
            if sender in helpers:
                _same("message", answers.pop(sender), message)
            server.receive(sender, message)
            continue
        if not requests and "failure" in run and message_type(message) is MessageType.SURVIVOR_SET:
            server = config.failure(secrets=PartySecrets(identity=signer))
            requests = dict(server.requests())
        requests = requests or dict(server.close_round())
        _same("message", requests.pop(recipient), message)
        if recipient not in run["silent"]:
            answers[recipient] = helpers[recipient].receive(message) or b""
    if "failure" in run:
        _same("proof of failure", server.proof.hex(), run["failure"])
        return
    server.close_round()
    _same("total", (server.result.total.tolist(), list(server.result.survivors)), (run["total"], run["survivors"]))


def check_mean(run: Json) -> None:
    """Replay what each client's arrays become in a mean, and the mean of their total.

    Raises:
        ConformanceError: the result differs from the published one.
    """
    shapes = tuple((name, tuple(shape)) for name, shape in run["shapes"])
    names = ("n_clients", "max_weight", "entry_bytes", "rounding")
    spec = MeanSpec(
        shapes=shapes,
        exponents=tuple(run["exponents"]),
        metrics=tuple(run["metrics"]),
        **{name: run[name] for name in names},
    )
    _same("layout", spec.layout.canonical().hex(), run["layout"])
    total = np.zeros(spec.layout.size, dtype=np.int64)
    for client in run["clients"].values():
        arrays = {name: _floats(client["arrays"][name]).reshape(shape) for name, shape in shapes}
        metrics = {name: float.fromhex(value) for name, value in client["metrics"].items()}
        entropy = _Recorded(client["entropy"])
        vector = spec.vector(arrays, weight=client["weight"], metrics=metrics, entropy=entropy)
        _same("vector", vector.tolist(), client["vector"])
        _same("entropy left", entropy.left, b"")
        total += vector
    mean = spec.mean(SumResult(total=total, survivors=tuple(sorted(_by_party(run["clients"])))))
    _same(
        "mean",
        {name: np.ravel(array).tolist() for name, array in mean.arrays.items()},
        {name: _floats(values).tolist() for name, values in run["mean"].items()},
    )
    _same("metrics", {name: value.hex() for name, value in mean.metrics.items()}, run["mean_metrics"])
    _same("clipped", dict(mean.clipped), run["clipped"])


def _floats(values: list[str]) -> NDArray[np.float64]:
    return np.array([float.fromhex(value) for value in values])


def main(words: Sequence[str] | None = None) -> int:
    """Replay the vectors of the package, or of the folder that is named, and print what differs; 1 if anything does."""
    parser = argparse.ArgumentParser(prog="python -m secagg.conformance", description="Replay published test vectors.")
    parser.add_argument("folder", nargs="?", type=Path, default=SHIPPED, help="vectors; the package's own by default")
    folder: Path = parser.parse_args(words).folder
    found = differences(folder)
    for name, reason in found.items():
        print(f"{name}: {reason}")
    print(f"{count(folder) - len(found)} of {count(folder)} vectors are reproduced")
    return int(bool(found) or count(folder) == 0)


def _opened(config: CommitteeSum, party: PartyId, message: bytes, keys: Mapping[PartyId, BoxKey]) -> object:
    """Return the content of an upload: decrypted boxes, commitments, vector, and whether it is signed."""
    upload = CommitteeInput.read(Reader(memoryview(payload_of(message)), peer=party), config)
    boxes = {p: keys[p].open(box, BOX_LABEL, box_binding(config.digest, party, p)) for p, box in upload.boxes.items()}
    signed_bytes = upload.entry(config.helpers[0]).statement(config.digest, party)
    signed = config.is_authenticated and verifies(config.identity_of(party), upload.signature, signed_bytes)
    return boxes, upload.commitments, upload.vector, signed


class _Recorded:
    """Entropy source that replays recorded bytes."""

    def __init__(self, drawn: str) -> None:
        self.left = bytes.fromhex(drawn)

    def __call__(self, n_bytes: int) -> bytes:
        if len(self.left) < n_bytes:
            raise ConformanceError("more entropy is drawn than was recorded")
        taken, self.left = self.left[:n_bytes], self.left[n_bytes:]
        return taken


def _messages(one: Json) -> list[Message]:
    return [(line["sender"], line["recipient"], bytes.fromhex(line["message"])) for line in one["messages"]]


def _by_party(values: Mapping[str, Any]) -> dict[PartyId, Any]:
    return {int(party): value for party, value in values.items()}


def _same(what: str, came: object, published: object) -> None:
    if came != published:
        raise ConformanceError(f"{what}: not as published")


if __name__ == "__main__":
    sys.exit(main())
