"""The ClientApp: hands each message to the site's reception."""

from __future__ import annotations

from flwr.app import Context, Error, Message
from flwr.clientapp import ClientApp

from federation.flower.wire import CATEGORY, pack, unpack
from federation.site.errors import REASONS, Refusal
from federation.site.messages import KINDS
from federation.site.reception import respond
from federation.site.site_file import SiteFile

app = ClientApp()


def answer(message: Message, context: Context) -> Message:
    """Return the site's answer, or an error reply that carries a code of ours and nothing of what happened."""
    kind = message.metadata.message_type.removeprefix(CATEGORY)
    said = respond(lambda: SiteFile.of_node(context.node_config), kind, lambda: unpack(message.content))
    if isinstance(said, Refusal):
        return Message(Error(code=int(said), reason=REASONS[said]), reply_to=message)
    return Message(pack(said), reply_to=message)


for _kind in KINDS:
    app.query(_kind)(answer)
