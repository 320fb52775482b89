"""Which of its request processors a site's NVFlare client keeps: those that run jobs of sums and tell their state."""

from __future__ import annotations

from nvflare.apis.fl_component import FLComponent
from nvflare.private.fed.client import scheduler_cmds, training_cmds
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
"""Of NVFlare's request processors those that a job needs. Others read files, show errors and environments, change logs
and stop the client, and NVFlare asks the host's policy about them only where the server's message says so."""


class JobsAlone(FLComponent):  # type: ignore[misc]
    """A component of the client's own resources: once it is built, the client processes no other request."""

    def __init__(self) -> None:
        super().__init__()
        processors = ClientRequestProcessors.request_processors
        processors[:] = [one for one in processors if isinstance(one, KEPT)]  # in place: the client holds this list
