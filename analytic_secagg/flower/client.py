"""The ClientApp: hands each message to the site's message handler."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from flwr.app import Context, Error, Message
from flwr.clientapp import ClientApp

from analytic_secagg.flower.wire import CATEGORY, pack, unpack
from analytic_secagg.site.errors import REASONS, Refusal, SiteFileError
from analytic_secagg.site.message_handler import handle_message
from analytic_secagg.site.messages import KINDS
from analytic_secagg.site.site_file import SiteFile

app = ClientApp()


def answer(message: Message, context: Context) -> Message:
    """Return the site's answer, or an error reply that carries a code of ours and nothing of what happened."""
    kind = message.metadata.message_type.removeprefix(CATEGORY)
    said = handle_message(lambda: site_of_node(context.node_config), kind, lambda: unpack(message.content))
    if isinstance(said, Refusal):
        return Message(Error(code=int(said), reason=REASONS[said]), reply_to=message)
    return Message(pack(said), reply_to=message)


for _kind in KINDS:
    app.query(_kind)(answer)


def site_of_node(node_config: Mapping[str, object]) -> SiteFile:
    """Return the site of a Flower node: the file that its own node-config names as ``site``.

    A simulated node has a ``partition-id`` instead; its file lies in the folder of simulated sites.

    Raises:
        SiteFileError: the node names no file.
    """
    named, number = node_config.get("site"), node_config.get("partition-id")
    if isinstance(named, str):
        return SiteFile.read(Path(named))
    real = "start the SuperNode with --node-config 'site=\"/path/to/site.toml\"'"
    if not isinstance(number, int):
        raise SiteFileError(f"a node needs its own file: {real}")
    return SiteFile.simulated(f"site-{number + 1}", real=real)
