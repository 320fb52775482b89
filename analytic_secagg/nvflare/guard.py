"""Guard of a site's NVFlare processes: they run jobs of sums for their server, tell their state, and no more."""

from __future__ import annotations

from nvflare.apis.fl_component import FLComponent
from nvflare.fuel.f3.cellnet.defs import ReturnCode
from nvflare.fuel.f3.cellnet.net_agent import NetAgent
from nvflare.fuel.f3.cellnet.utils import make_reply
from nvflare.fuel.f3.message import Message
from nvflare.private.fed.client import admin_commands, scheduler_cmds, training_cmds
from nvflare.private.fed.client.client_req_processors import ClientRequestProcessors

KEPT = (
    scheduler_cmds.CheckResourceProcessor,
    scheduler_cmds.CancelResourceProcessor,
    scheduler_cmds.StartJobProcessor,
    training_cmds.DeployProcessor,
    training_cmds.NotifyJobStatusProcessor,
    training_cmds.AbortAppProcessor,
    training_cmds.AbortTaskProcessor,
    training_cmds.DeleteRunNumberProcessor,
    training_cmds.ClientStatusProcessor,
)
"""NVFlare's request processors that a job needs. Others read files, show errors and environments, change logs
and stop the client, and NVFlare asks the host's policy about them only where the server's message says so."""

KEPT_COMMANDS = (
    admin_commands.CheckStatusCommand,
    admin_commands.AbortCommand,
    admin_commands.AbortTaskCommand,
    admin_commands.ByeCommand,
)
"""Requests that a job's process answers to anyone that reaches its cell. Others show its errors and change its log."""


class JobsAlone(FLComponent):  # type: ignore[misc]
    """A component of the client's own resources: once it is built, client and job processes take no other request.

    Diagnostics below requests are refused too: they tell settings, threads and memory, send load, and stop a cell.
    """

    def __init__(self) -> None:
        super().__init__()
        processors = ClientRequestProcessors.request_processors
        processors[:] = [one for one in processors if isinstance(one, KEPT)]  # in place: the client holds this list
        commands = admin_commands.AdminCommands.commands
        commands[:] = [one for one in commands if isinstance(one, KEPT_COMMANDS)]
        for name in [name for name in vars(NetAgent) if name.startswith("_do_")]:  # it registers them by these names
            setattr(NetAgent, name, _refuse)


def _refuse(agent: NetAgent, request: Message) -> Message:
    return make_reply(ReturnCode.INVALID_REQUEST, "this host answers no diagnostics")
