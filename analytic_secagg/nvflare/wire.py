"""Bytes as NVFlare's shareables, and tasks as a way to nodes (``analytic_secagg.server.exchange.Transport``)."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping
from uuid import uuid4

from nvflare.apis.controller_spec import ClientTask, Task, TaskCompletionStatus
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable

from analytic_secagg.server.exchange import Answers, NodeId, NoReply, Transport
from analytic_secagg.site.errors import Refusal, WireError

_CONTENT, _REFUSAL = "content", "refusal"


def pack(said: bytes | Refusal) -> Shareable:
    """Return the shareable of some bytes, or of a site's refusal, of which the code alone travels."""
    return Shareable({_REFUSAL: int(said)} if isinstance(said, Refusal) else {_CONTENT: said})


def unpack(shareable: Shareable) -> bytes:
    """Return the bytes of a shareable.

    Raises:
        WireError: it is none of this version's.
    """
    content = shareable.get(_CONTENT)
    if not isinstance(content, bytes):
        raise WireError("a message's shareable holds no bytes; both sides need the same version")
    return content


def answer_of(result: object) -> bytes | NoReply:
    """Return what a client's result says; of an error our own words and never a node's."""
    if not isinstance(result, Shareable):
        return NoReply("its answer is no shareable")
    if (code := result.get_return_code()) != ReturnCode.OK:
        return NoReply(_CODES.get(code, "its NVFlare client could not run the task"))
    refusal = result.get(_REFUSAL)
    if refusal is not None:
        known = (NoReply.refused(code) for code in Refusal if code == refusal)
        return next(known, NoReply("it refuses with an unknown code"))
    try:
        return unpack(result)
    except WireError:
        return b""  # what belongs to no sum is refused there


_TICKET = "secagg_ticket"

_ENDS = {
    TaskCompletionStatus.TIMEOUT: "no answer before the deadline",
    TaskCompletionStatus.CLIENT_DEAD: "the client is gone",
    TaskCompletionStatus.ABORTED: "its task was aborted",
    TaskCompletionStatus.CANCELLED: "its task was cancelled",
}

_CODES = {
    ReturnCode.TASK_UNKNOWN: "its NVFlare client has no such task: the job's kit there is another one",
    ReturnCode.EXECUTION_EXCEPTION: "its executor failed; that client's own log says why",
    ReturnCode.TASK_ABORTED: "its NVFlare client aborted the task",
    ReturnCode.UNSAFE_JOB: "its NVFlare client takes the job for unsafe",
}
"""Our words for what NVFlare itself says of a client, by its codes."""


def node_of(name: str) -> NodeId:
    """Return the number of a client: the same in every job, so that one goes on with the run of another.

    Args:
        name: of the client, which NVFlare's certificates bind.
    """
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:7], "big")


class TaskTransport(Transport):
    """The clients of one job, each of which fetches its messages as tasks.

    Args:
        controller: the job's.
        context: of its flow of control.
    """

    def __init__(self, controller: Controller, context: FLContext) -> None:
        self._controller, self._context = controller, context
        self._names: dict[NodeId, str] = {}
        self._answers = Answers()

    def nodes(self) -> Iterable[NodeId]:
        """Return the clients of the job that NVFlare does not count as gone. It is its word and proves nothing."""
        clients = {node_of(client.name): client.name for client in self._context.get_engine().get_clients()}
        self._names |= clients
        gone = self._controller.get_client_disconnect_time
        return [node for node, name in clients.items() if not gone(name)]

    def send(self, kind: str, contents: Mapping[NodeId, bytes], *, seconds: float, number: int) -> dict[str, NodeId]:
        """Lay a task ready for each client, which fetches it."""
        tickets = {uuid4().hex: node for node in contents if node in self._names}  # others are not here yet
        self._answers.expect(tickets, number=number)
        for ticket, node in tickets.items():
            task = Task(
                name=kind,
                data=pack(contents[node]),
                timeout=math.ceil(seconds),
                result_received_cb=self._take,
                task_done_cb=self._close,
                props={_TICKET: ticket},
            )
            self._controller.send(task, self._context, targets=[self._names[node]])
        return tickets

    def receive(self, ticket: str) -> bytes | NoReply | None:
        """Return the answer to one message, if it is there."""
        return self._answers.take(ticket)

    def name(self, node: NodeId) -> str:
        """Return the client's name, as NVFlare's own logs do."""
        return self._names.get(node, str(node))

    def _take(self, client_task: ClientTask, fl_ctx: FLContext) -> None:
        self._answers.settle(client_task.task.props[_TICKET], answer_of(client_task.result))

    def _close(self, task: Task, fl_ctx: FLContext) -> None:
        """Settle a task that ended without an answer."""
        lost = NoReply(_ENDS.get(task.completion_status, "its task ended without an answer"))
        self._answers.settle(task.props[_TICKET], lost)
