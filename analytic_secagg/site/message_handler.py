"""Handler of the server's messages at a site, for every engine: only an answer or a bland code leaves it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from analytic.errors import AnalyticError
from analytic_secagg.errors import FederationError
from analytic_secagg.site.errors import DeclinedError, NoBudgetError, NoSessionError, Refusal, WireError
from analytic_secagg.site.json_log import logged
from analytic_secagg.site.messages import (
    CONTEXT,
    END,
    INVITE,
    STEP,
    opened,
    read_end,
    read_messages,
    read_proposal,
    write_messages,
)
from analytic_secagg.site.site import LOG, Site
from analytic_secagg.site.site_file import SiteFile
from secagg.dp import BudgetExceededError, LedgerError, PrivacyError
from secagg.errors import (
    ConsentRefusedError,
    LocalProtocolError,
    MalformedMessageError,
    RemoteProtocolError,
    SecureSumError,
    SnapshotError,
)


def handle_message(read_file: Callable[[], SiteFile], kind: str, read_content: Callable[[], bytes]) -> bytes | Refusal:
    """Return a site's answer to one message of the server, or why there is none.

    An exception that left this function would reach the server with its text, so none does.

    Args:
        read_file: reads the site's own file, anew for each message.
        kind: one of ``messages.KINDS``.
        read_content: the message's bytes; it may raise what it likes.
    """
    with ExitStack() as stack:
        try:
            file = read_file()
            stack.enter_context(logged(file.log))
            said = _answer(Site(file), kind, opened(file.roster.server, kind, read_content()))
            LOG.info("answered a message of the kind %s with %d bytes", kind, len(said))
            return said
        except (Exception, SystemExit) as error:
            _log(error)
            return _code(error)


def _answer(site: Site, kind: str, content: bytes) -> bytes:
    if kind in (CONTEXT, INVITE):
        proposal, asked = read_proposal(content)
        said = site.announce(proposal) if kind == CONTEXT else site.join(proposal, asked)
        return write_messages(said, session=proposal.session)
    if kind == STEP:
        session, requests = read_messages(content)
        return write_messages(site.answer(session, requests), session=session)
    if kind != END:
        raise WireError(f"a message of the kind {kind!r} is none of this version's")
    session, results, failure = read_end(content)
    site.end(session, results, failure)
    return write_messages({}, session=session)


def _code(error: BaseException) -> Refusal:
    kinds: tuple[tuple[type[BaseException] | tuple[type[BaseException], ...], Refusal], ...] = (
        (NoBudgetError, Refusal.NO_BUDGET),
        (DeclinedError, Refusal.NOT_AGREED),
        ((ConsentRefusedError, AnalyticError, PrivacyError, BudgetExceededError, LedgerError), Refusal.DECLINED),
        ((NoSessionError, SnapshotError), Refusal.NO_SESSION),  # what was sealed under another key opens never again
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
