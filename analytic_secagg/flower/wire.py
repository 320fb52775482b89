"""Bytes as Flower's records, and Flower's grid as a way to nodes (``analytic_secagg.server.exchange.Transport``)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from analytic_secagg.server.exchange import NodeId, NoReply, Transport
from analytic_secagg.site.errors import Refusal, UnreachableError, WireError

CATEGORY = "query."
"""Prefix of the type of each of this app's messages; its kind follows."""

HEAVY_BYTES = 1 << 20
"""From here on bytes travel as an array, which Flower sends in pieces and copies less often."""

_CONTENT = "content"

_ERRORS = {
    1: "the node cannot load the app",
    2: "the app failed on the node",
    3: "no answer before the deadline",
    4: "its answer was lost",
    5: "the node is gone",
    8: "the node's client process died",
}

_DIED = frozenset({3, 4, 5, 8})
"""The errors after which asking again may help: an answer or a process was lost, nobody refused."""

_UNREADABLE = (AttributeError, LookupError, TypeError, ValueError, DecodeError)
"""Errors of Flower while it assembles an answer whose objects a node forged."""


def pack(content: bytes) -> RecordDict:
    """Return the record of some bytes."""
    if len(content) < HEAVY_BYTES:
        return RecordDict({_CONTENT: ConfigRecord({_CONTENT: content})})
    return RecordDict({_CONTENT: ArrayRecord({_CONTENT: Array(np.frombuffer(content, np.uint8))})})


def unpack(record: RecordDict) -> bytes:
    """Return the bytes of a record.

    Raises:
        WireError: it is none of this app's.
    """
    try:
        held = record[_CONTENT]
        content: object = held[_CONTENT]
        if isinstance(content, Array):
            array = content.numpy()
            content = array.tobytes() if array.dtype == np.uint8 and array.ndim == 1 else None
    except Exception as error:  # whatever a forged array makes numpy raise
        raise WireError("a message's record does not read; both sides need the same version") from error
    if not isinstance(content, bytes):
        raise WireError("a message's record holds no bytes; both sides need the same version")
    return content


def no_reply(code: int) -> NoReply:
    """Return what the code of a node's error comes to, in our own words and never in the node's."""
    if code in set(Refusal):
        return NoReply.refused(Refusal(code))
    return NoReply(_ERRORS.get(code, f"Flower's error {code}"), may_return=code in _DIED)


class GridTransport(Transport):
    """Flower's nodes.

    Args:
        grid: Flower's way to them.
    """

    def __init__(self, grid: Grid) -> None:
        self._grid = grid

    def nodes(self) -> Iterable[NodeId]:
        """Return who can be reached now. It is the SuperLink's word and proves nothing; identities do."""
        return self._grid.get_node_ids()

    def send(self, kind: str, contents: Mapping[NodeId, bytes], *, seconds: float, number: int) -> dict[str, NodeId]:
        """Send; the id of each message that Flower could store, and its node.

        Raises:
            UnreachableError: the SuperLink did not take the messages.
        """
        different = {id(content): content for content in contents.values()}
        records = {key: pack(content) for key, content in different.items()}
        messages = [
            Message(records[id(content)], node, CATEGORY + kind, ttl=seconds, group_id=str(number))
            for node, content in contents.items()
        ]
        identifiers = list(self._grid.push_messages(messages))
        if len(identifiers) != len(messages):
            raise UnreachableError(f"the SuperLink took {len(identifiers)} of {len(messages)} messages; see its log")
        return {identifier: node for identifier, node in zip(identifiers, contents, strict=True) if identifier}

    def receive(self, ticket: str) -> bytes | NoReply | None:
        """Return the answer to one message, if it is there."""
        try:
            replies = list(self._grid.pull_messages([ticket]))
        except _UNREADABLE as error:
            return NoReply(f"its answer does not read ({type(error).__name__})")
        if not replies:
            return None
        if not replies[0].has_error():
            try:
                return unpack(replies[0].content)
            except WireError:
                return b""  # what belongs to no sum is refused there
        return no_reply(replies[0].error.code)
