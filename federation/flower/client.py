"""The ClientApp: hands each message to the site, and lets no more out than an answer or a bland code."""

from __future__ import annotations

import logging
from collections.abc import Callable

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp

from analytic.errors import AnalyticError
from federation.errors import FederationError
from federation.flower.wire import (
    CONTEXT,
    END,
    INVITE,
    STEP,
    read_invitation,
    read_messages,
    read_requests,
    write_messages,
)
from federation.site.errors import REASONS, DeclinedError, NoSessionError, Refusal, WireError
from federation.site.site import Site
from federation.site.site_file import SiteFile
from secagg.errors import LocalProtocolError, MalformedMessageError, RemoteProtocolError, SecureSumError

LOG = logging.getLogger("analytic_secagg.site")
"""The site's own log; it stays on the site's host."""

app = ClientApp()


@app.query(CONTEXT.removeprefix("query."))
def make_context(message: Message, context: Context) -> Message:
    """Answer with the key holder's public context, where the key holder is; with nothing elsewhere."""

    def answer(site: Site) -> RecordDict:
        invitation = read_invitation(message.content)
        return write_messages(site.make_context(invitation), session=invitation.session)

    return _guarded(message, context, answer)


@app.query(INVITE.removeprefix("query."))
def join(message: Message, context: Context) -> Message:
    """Answer an invitation."""

    def answer(site: Site) -> RecordDict:
        invitation, requests = read_invitation(message.content), read_requests(message.content)
        return write_messages(site.join(invitation, requests), session=invitation.session)

    return _guarded(message, context, answer)


@app.query(STEP.removeprefix("query."))
def step(message: Message, context: Context) -> Message:
    """Answer the server's requests in a running session."""

    def answer(site: Site) -> RecordDict:
        session, requests = read_messages(message.content)
        return write_messages(site.answer(session, requests), session=session)

    return _guarded(message, context, answer)


@app.query(END.removeprefix("query."))
def end(message: Message, context: Context) -> Message:
    """Forget a session."""

    def answer(site: Site) -> RecordDict:
        session, _ = read_messages(message.content)
        site.end(session)
        return write_messages({}, session=session)

    return _guarded(message, context, answer)


def _guarded(message: Message, context: Context, answer: Callable[[Site], RecordDict]) -> Message:
    """The answer, or an error reply that carries a code of ours and nothing of what happened.

    An exception that left this function would reach the server with its text.
    """
    try:
        return Message(answer(Site(SiteFile.of_node(context.node_config))), reply_to=message)
    except (Exception, SystemExit) as error:
        _log(error)
        code = _code(error)
    return Message(Error(code=int(code), reason=REASONS[code]), reply_to=message)


def _code(error: BaseException) -> Refusal:
    kinds: tuple[tuple[type[BaseException] | tuple[type[BaseException], ...], Refusal], ...] = (
        (DeclinedError, Refusal.DECLINED),
        (NoSessionError, Refusal.NO_SESSION),
        ((WireError, MalformedMessageError), Refusal.BAD_MESSAGE),
        ((RemoteProtocolError, LocalProtocolError), Refusal.ABORTED),
    )
    return next((code for kind, code in kinds if isinstance(error, kind)), Refusal.FAILED)


def _log(error: BaseException) -> None:
    """Our own errors in words, since no row or key is ever in them; of any other its type alone."""
    if isinstance(error, SecureSumError | AnalyticError | FederationError):
        LOG.warning("no answer given: %s: %s", type(error).__name__, error)
    else:
        LOG.warning("no answer given: %s; see for yourself with the command check-site", type(error).__name__)
