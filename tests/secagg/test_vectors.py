"""Test vectors: written again they do not change, and a second implementation says every byte of them too."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.append(str(Path(__file__).resolve().parents[1] / "slow_implementation"))

import slow_bytes
import slow_curves
from slow_client import SlowClient
from slow_driver import Drawn, Message, Playback, run
from slow_receipt import SlowReceiptedClient, SlowReceiptedServer
from slow_series import SlowSeriesClient, SlowSeriesServer
from slow_server import SlowServer
from slow_session import Session

from secagg import conformance
from secagg.conformance import receipted_sum
from secagg.primitives.identity import verifies
from secagg.receipts import Receipt

TESTS = Path(__file__).resolve().parents[1]
_spec = importlib.util.spec_from_file_location("make_vectors", TESTS / "make_vectors.py")
assert _spec is not None
assert _spec.loader is not None
make_vectors = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(make_vectors)

Json = dict[str, Any]
SCENARIOS: dict[str, Json] = {
    path.name: json.loads(path.read_text()) for path in sorted(make_vectors.VECTORS.glob("*.json"))
}
ONE_SUM = [name for name, scenario in SCENARIOS.items() if "sums" not in scenario]
SERIES = [name for name, scenario in SCENARIOS.items() if "sums" in scenario]
BAD: dict[str, Json] = {
    path.stem: json.loads(path.read_text()) for path in sorted((make_vectors.VECTORS / "bad").glob("*.json"))
}


def by_party(values: Mapping[str, Any]) -> dict[int, Any]:
    return {int(party): value for party, value in values.items()}


def messages_of(lines: Sequence[Json]) -> list[Message]:
    return [(line["sender"], line["recipient"], bytes.fromhex(line["message"])) for line in lines]


def entropy_of(scenario: Json) -> dict[int, Drawn]:
    return {party: Drawn(bytes.fromhex(drawn)) for party, drawn in by_party(scenario["entropy"]).items()}


def slow_sessions(scenario: Json, entropy: Mapping[int, Drawn]) -> tuple[dict[int, Any], Any]:
    """The slow implementation's."""
    secrets = {p: bytes.fromhex(secret) for p, secret in by_party(scenario["identity_secrets"]).items()}
    if "sums" in scenario:
        first = scenario["sums"][0]
        layout, context = tuple(map(tuple, first["layout"])), bytes.fromhex(first["context"])
        server = SlowSeriesServer(scenario["parameters"], secrets.get(0, b""))
        server.begin_sum(layout, context)
        clients = {}
        for party, vector in by_party(first["vectors"]).items():
            clients[party] = SlowSeriesClient(scenario["parameters"], party, entropy[party], secrets.get(party, b""))
            clients[party].begin_sum(layout, context, vector)
        return clients, server
    session = Session.of(scenario["parameters"])
    clients = {
        party: SlowClient(session, party, vector, entropy[party], secrets.get(party, b""))
        for party, vector in by_party(scenario["vectors"]).items()
    }
    server = SlowServer(session, secrets.get(0, b""))
    if "signed_by" in scenario["parameters"]:
        return {p: SlowReceiptedClient(client) for p, client in clients.items()}, SlowReceiptedServer(server)
    return clients, server


@pytest.fixture(scope="module")
def computed_now() -> Mapping[str, str]:
    files: Mapping[str, str] = make_vectors.all_files()
    return files


def test_the_files_are_what_the_script_writes(computed_now: Mapping[str, str]) -> None:
    """If this fails on purpose, the wire format changed: raise VERSION, then run tests/make_vectors.py."""
    assert make_vectors.differences(computed_now) == []


@pytest.mark.parametrize("name", ["complete_no_dropouts.json", "committee/committee_dropout.json"])
def test_a_changed_file_is_noticed(computed_now: Mapping[str, str], name: str) -> None:
    changed = {**computed_now, name: computed_now[name].replace("1", "2", 1)}
    assert make_vectors.differences(changed) == [name]
    assert make_vectors.differences({k: v for k, v in computed_now.items() if k != name}) == [name]


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_library_says_every_byte(name: str) -> None:
    conformance.check_run(SCENARIOS[name])


def test_the_package_ships_copies_of_some() -> None:
    assert make_vectors.shipped_differences() == []
    assert conformance.count() == 9


@pytest.mark.parametrize("name", ONE_SUM)
def test_the_slow_implementation_says_every_byte(name: str) -> None:
    scenario = SCENARIOS[name]
    entropy = entropy_of(scenario)
    clients, server = slow_sessions(scenario, entropy)
    session = server.session
    assert (session.digest.hex(), session.setup_digest.hex()) == (scenario["digest"], scenario["setup_digest"])
    assert by_party(scenario["neighbours"]) == {party: session.neighbours(party) for party in session.clients}
    assert run(clients, server, by_party(scenario["messages_sent"])) == messages_of(scenario["messages"])
    assert (server.total, server.survivors) == (scenario["total"], scenario["survivors"])
    assert not any(drawn.left for drawn in entropy.values())
    if "receipt" in scenario:
        assert server.receipt.hex() == scenario["receipt"]


@pytest.mark.parametrize("name", SERIES)
def test_the_slow_implementation_says_every_byte_of_a_series(name: str) -> None:
    scenario = SCENARIOS[name]
    known, entropy = scenario["parameters"], entropy_of(scenario)
    secrets = {p: bytes.fromhex(secret) for p, secret in by_party(scenario["identity_secrets"]).items()}
    clients = {p: SlowSeriesClient(known, p, entropy[p], secrets.get(p, b"")) for p in known["clients"]}
    server = SlowSeriesServer(known, secrets.get(0, b""))
    assert server.digest.hex() == scenario["digest"]
    for one in scenario["sums"]:
        layout, context = tuple(map(tuple, one["layout"])), bytes.fromhex(one["context"])
        for party, client in clients.items():
            client.begin_sum(layout, context, one["vectors"][str(party)])
        server.begin_sum(layout, context)
        assert run(clients, server, by_party(one["messages_sent"])) == messages_of(one["messages"])
        assert (server.total, server.survivors) == (one["total"], one["survivors"])
    assert not any(drawn.left for drawn in entropy.values())


def sums_in_the_clear() -> Iterator[tuple[str, Json]]:
    for name, scenario in SCENARIOS.items():
        for one in scenario.get("sums", [scenario]):
            yield name, one


@pytest.mark.parametrize(
    ("name", "one"), list(sums_in_the_clear()), ids=lambda value: value if isinstance(value, str) else ""
)
def test_totals_are_the_survivors_vectors(name: str, one: Json) -> None:
    """What no message can tell: the total of a vector is the plain sum of the vectors that are in it."""
    vectors = by_party(one["vectors"])
    assert one["total"] == [sum(column) for column in zip(*(vectors[p] for p in one["survivors"]), strict=True)]
    layout = one["layout"] if "layout" in one else SCENARIOS[name]["parameters"]["layout"]
    ends = [at for _, _, *bounds in layout for at in (min(bounds), -min(bounds))]
    assert set(ends) <= set(one["total"])  # both ends of every bound are reached


def test_receipts_verify() -> None:
    scenario = SCENARIOS["receipted.json"]
    known, issued = scenario["parameters"], Receipt.from_bytes(bytes.fromhex(scenario["receipt"]))
    receipted_sum(known).verify(issued)
    issued.verify_total(np.array(scenario["total"]))


OF_ORDER_8 = bytes.fromhex("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a")


def test_signatures_verify_without_the_cofactor() -> None:
    """A key with a part of order 8: the equation with the cofactor would take all these, this one an eighth of them."""
    a, _ = slow_curves._expand(b"a" * 32)
    of_order_8 = slow_curves._decompress(OF_ORDER_8)
    assert of_order_8 is not None
    public = slow_curves._compress(slow_curves._add(slow_curves._times(a, slow_curves.BASE), of_order_8))
    taken = 0
    for number in range(64):
        said, r = b"statement %d" % number, 1000 + number
        commitment = slow_curves._compress(slow_curves._times(r, slow_curves.BASE))
        k = slow_curves._sha512(commitment + public + said) % slow_curves.L
        signature = commitment + ((r + k * a) % slow_curves.L).to_bytes(32, "little")
        assert verifies(public, signature, said) == (k % 8 == 0)
        assert slow_curves.ed25519_verifies(public, said, signature) == (k % 8 == 0)
        taken += k % 8 == 0
    assert 0 < taken < 64


def play_to(bad: Json) -> Playback:
    """The slow implementation's sessions, before the bad message comes."""
    scenario = SCENARIOS[bad["scenario"]]
    messages = messages_of(scenario.get("messages") or scenario["sums"][0]["messages"])
    clients, server = slow_sessions(scenario, entropy_of(scenario))
    play = Playback(clients, server, messages)
    play.advance(bad["delivered"])
    return play


def feed(play: Playback, bad: Json) -> None:
    """Give the bad message to whom it is for, and close what must be closed for the fault to show."""
    message = None if bad["message"] is None else bytes.fromhex(bad["message"])
    if bad["refused_when"] == "received":
        assert message is not None
        if bad["recipient"]:
            play.clients[bad["recipient"]].receive(message)
        else:
            play.open_round()
            play.server.receive(bad["sender"], message)
        return
    if message is not None:
        play.instead(message)
    if bad["refused_when"] == "sum ends":
        play.finish()
    if message is not None:
        play.advance(play.end_of_round())
    play.close_round()


@pytest.mark.parametrize("name", BAD)
def test_the_library_refuses_bad_messages(name: str) -> None:
    conformance.check_bad_message(BAD[name], SCENARIOS[BAD[name]["scenario"]])


@pytest.mark.parametrize("name", BAD)
def test_the_slow_implementation_refuses_bad_messages(name: str) -> None:
    play = play_to(BAD[name])
    with pytest.raises(slow_bytes.Refused):
        feed(play, BAD[name])
