"""Work that is shared out over processes, each with the same things at hand."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any

from analytic_secagg.errors import FederationError


@contextmanager
def processes(jobs: int, begin: Callable[..., None], *given: Any, what: str) -> Iterator[Callable[..., Future[Any]]]:
    """Start processes and give a function that submits work to them; what nobody began ends with the block.

    Args:
        jobs: how many.
        begin: called once in each of them, with what is given.
        given: what ``begin`` gets.
        what: names a piece of work, for an error.

    Raises:
        FederationError: the system ended one of them.
    """
    with ProcessPoolExecutor(jobs, get_context("spawn"), _begin, (begin, given)) as workers:
        try:
            yield workers.submit
        except BrokenProcessPool as error:
            raise FederationError(
                f"the system ended the process of {what}, as it does where memory is short: work on fewer than {jobs} "
                "at a time (--jobs)"
            ) from error
        finally:
            workers.shutdown(cancel_futures=True)


def _begin(begin: Callable[..., None], given: tuple[Any, ...]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a Ctrl-C reaches every process, and one of them says so
    begin(*given)
