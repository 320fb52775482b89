"""Bytes in Flower's records, what Flower says of lost nodes, and how a run ends in Flower's log."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs the extra: pip install '.[flower]'")

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from support.rehearsed import few_rows, run_config

from analytic_secagg.flower.client import site_of_node
from analytic_secagg.flower.rehearsal import InProcessGrid
from analytic_secagg.flower.server import RunFailedError, app
from analytic_secagg.flower.wire import HEAVY_BYTES, GridTransport, pack, unpack
from analytic_secagg.server.exchange import NoReply
from analytic_secagg.server.server_file import SERVER_VARIABLE, ServerFile
from analytic_secagg.site.errors import Refusal, SiteFileError, UnreachableError, WireError
from analytic_secagg.site.site_file import SITES_VARIABLE
from analytic_secagg.trial import Trial


@pytest.mark.parametrize("size", [0, 1, HEAVY_BYTES - 1, HEAVY_BYTES, HEAVY_BYTES + 1])
def test_bytes_come_back(size: int) -> None:
    content = np.arange(size, dtype=np.uint64).astype(np.uint8).tobytes()
    record = pack(content)
    assert isinstance(record["content"], ArrayRecord) == (size >= HEAVY_BYTES)
    assert unpack(record) == unpack(record) == content


def of_array(array: Array) -> RecordDict:
    return RecordDict({"content": ArrayRecord({"content": array})})


@pytest.mark.parametrize(
    "record",
    [
        RecordDict(),
        RecordDict({"light": ConfigRecord({"content": b"x"})}),
        RecordDict({"content": ConfigRecord({})}),
        RecordDict({"content": ConfigRecord({"content": "text"})}),
        RecordDict({"content": ConfigRecord({"content": [b"x"]})}),
        RecordDict({"content": MetricRecord({"content": 3})}),
        of_array(Array(np.zeros(3))),
        of_array(Array(np.zeros((2, 2), np.uint8))),
        of_array(Array(dtype="uint8", shape=(3,), stype="numpy.ndarray", data=b"rubbish")),
    ],
)
def test_foreign_records_are_refused(record: RecordDict) -> None:
    with pytest.raises(WireError, match="both sides need the same version"):
        unpack(record)


class Answering(InProcessGrid):
    """Every node answers with one record or error, as the test says."""

    def __init__(self, answer: RecordDict | Error | None) -> None:
        super().__init__({1: {}, 2: {}})
        self.answer = answer

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        asked = [self._sent[identifier] for identifier in message_ids]
        return [] if self.answer is None else [Message(self.answer, reply_to=message) for message in asked] * 2  # type: ignore[call-overload]


def received(grid: Answering) -> Any:
    transport = GridTransport(grid)
    (ticket,) = transport.send("step", {1: b"x"}, seconds=60, number=1)
    return transport.receive(ticket)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (None, None),
        (pack(b"said"), b"said"),
        (RecordDict(), b""),
        *[(Error(code=int(refusal), reason="a node's own words"), NoReply.refused(refusal)) for refusal in Refusal],
        (Error(code=1, reason=""), NoReply("the node cannot load the app")),
        (Error(code=2, reason=""), NoReply("the app failed on the node")),
        (Error(code=3, reason=""), NoReply("no answer before the deadline", may_return=True)),
        (Error(code=4, reason=""), NoReply("its answer was lost", may_return=True)),
        (Error(code=5, reason=""), NoReply("the node is gone", may_return=True)),
        (Error(code=8, reason=""), NoReply("the node's client process died", may_return=True)),
        (Error(code=77, reason="a node's own words"), NoReply("Flower's error 77")),
    ],
)
def test_an_answer_or_why_there_is_none(answer: Any, expected: Any) -> None:
    """In our words: a node's are not repeated."""
    assert received(Answering(answer)) == expected


@pytest.mark.parametrize("error", [KeyError, ValueError, DecodeError])
def test_an_answer_that_flower_cannot_put_together_loses_its_node(error: type[Exception]) -> None:
    class Forged(Answering):
        def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
            raise error("no such class of objects")

    assert received(Forged(None)) == NoReply(f"its answer does not read ({error.__name__})")


def test_messages_that_flower_does_not_take_are_an_error() -> None:
    class Full(Answering):
        def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
            return []

    with pytest.raises(UnreachableError, match="took 0 of 2"):
        GridTransport(Full(None)).send("step", {1: b"x", 2: b"x"}, seconds=60, number=1)


def test_a_message_that_flower_cannot_store_has_no_ticket() -> None:
    class Leaky(Answering):
        def push_messages(self, messages: Iterable[Message]) -> Any:
            first, *rest = super().push_messages(messages)
            return [first, *[None for _ in rest]]

    assert list(GridTransport(Leaky(None)).send("step", {1: b"x", 2: b"x"}, seconds=60, number=1).values()) == [1]


def test_what_goes_to_many_is_one_record() -> None:
    grid, content = Answering(None), b"x" * HEAVY_BYTES
    GridTransport(grid).send("step", dict.fromkeys((1, 2), content), seconds=60, number=1)
    assert len({id(message.content) for message in grid._sent.values()}) == 1


def test_a_node_and_a_server_find_their_files(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    """A real node by its own configuration, a simulated one by its number; a server's run config names nothing."""
    monkeypatch.delenv(SITES_VARIABLE, raising=False)
    assert site_of_node({"site": str(trial.folder / "site-2" / "site.toml")}).client is not None
    with pytest.raises(SiteFileError, match="--node-config"):
        site_of_node({"partition-id": 0})
    monkeypatch.setenv(SITES_VARIABLE, str(trial.folder))
    found = site_of_node({"partition-id": 2, "num-partitions": 5}).client
    assert found is not None
    assert found.party == 3
    monkeypatch.delenv(SERVER_VARIABLE, raising=False)
    with pytest.raises(SiteFileError, match=SERVER_VARIABLE):
        ServerFile.of_host()
    monkeypatch.setenv(SERVER_VARIABLE, str(trial.folder / "server" / "server.toml"))
    assert ServerFile.of_host().output.name == "models"


LOG = logging.getLogger("flwr")


def test_a_refused_total_ends_in_its_reason_and_no_traceback(
    trial: Trial, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As Flower logs what an app raises; a fault of ours keeps its traceback."""
    few_rows(trial)
    monkeypatch.setenv(SERVER_VARIABLE, str(trial.folder / "server" / "server.toml"))
    sites = {1000 + party: {"site": str(trial.folder / f"site-{party}" / "site.toml")} for party in trial.rows}
    context = Context(run_id=7, node_id=0, node_config={}, state=RecordDict(), run_config=run_config())
    monkeypatch.setattr(logging.getLogger("flwr"), "propagate", True)
    with pytest.raises(RunFailedError) as failed:
        app(InProcessGrid(sites), context)
    LOG.error("%s raised an exception", "ServerApp", exc_info=failed.value)
    assert "ReleaseRefusedError: class rows: " in caplog.text
    assert "rank: the total has rank" in caplog.text
    assert "Traceback" not in caplog.text
    monkeypatch.setattr("analytic_secagg.flower.server.train", lambda *args, **names: 1 / 0)
    with pytest.raises(ZeroDivisionError) as fault:
        app(InProcessGrid(sites), context)
    LOG.error("%s raised an exception", "ServerApp", exc_info=fault.value)
    assert "Traceback" in caplog.text
