"""A command as a process: its streams, its signals and its exit code."""

from __future__ import annotations

import os
import signal
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn, TextIO

FAILED, INTERRUPTED, UNREAD, TERMINATED = 2, 130, 141, 143
"""The last three as a shell reports them: 128 and the number of the signal (SIGINT, SIGPIPE, SIGTERM)."""

EXIT_CODES = {
    FAILED: "wrong input or a failure",
    INTERRUPTED: "stopped by Ctrl-C",
    UNREAD: "the reader of the output has closed it",
    TERMINATED: "stopped by SIGTERM",
}
"""Meaning of the exit codes above 1, the same for every command."""

SIGNALS = {signal.SIGINT: INTERRUPTED, signal.SIGTERM: TERMINATED}
"""Signals that stop a command, with its exit code."""


def exit_codes(fine: str = "as it should be", finding: str | None = None) -> str:
    """The last lines of a command's help.

    Args:
        fine: what its code 0 says.
        finding: what its code 1 says; None for a command that has no such code.
    """
    own = {0: fine} if finding is None else {0: fine, 1: finding}
    listed = ", ".join(f"{code} {meaning}" for code, meaning in (own | EXIT_CODES).items())
    return textwrap.fill(f"exit code: {listed}", width=118, subsequent_indent=" " * len("exit code: ")) + "\n"


_SPIN, _SPIN_CYCLES = "OPENBLAS_THREAD_TIMEOUT", "18"
"""For how long the threads of OpenBLAS look for more work before they sleep: 2^18 cycles, in place of 2^28, a tenth of
a second of every core after each product, which the rest of a command has use for. NumPy's and scipy's read it once, as
they are loaded; a command loads them after this. What the environment says already stays."""


class _Stopped(KeyboardInterrupt):
    """Either signal, told to the work as Ctrl-C is, so that it cleans up in the same way.

    A class of its own, since Python ends a process by SIGINT, whatever its code, once a bare ``KeyboardInterrupt`` has
    passed through ``exec``, which loading a module's dataclasses does.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.code = SIGNALS[signal.Signals(number)]


def run_as_process(command: Callable[[], int], *, alone: bool) -> int:
    """The exit code of a command, whatever becomes of its streams and whoever stops it.

    Args:
        command: does the work and returns 0, 1 or 2.
        alone: whether the process is this command and ends with it.

    Returns:
        The command's own code, 2 when its output cannot be written, 130 when Ctrl-C and 143 when SIGTERM stopped it,
        141 when nobody reads the output any more.
    """
    _mend_streams()
    if alone:
        os.environ.setdefault(_SPIN, _SPIN_CYCLES)
    try:
        with _signals_interrupt():
            return _with_output(command)
    except KeyboardInterrupt as stop:
        if alone:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C while it ends would bring a traceback
        print("stopped; no file is half-written", file=sys.stderr)
        return stop.code if isinstance(stop, _Stopped) else INTERRUPTED


def _with_output(command: Callable[[], int]) -> int:
    try:
        try:
            return command()
        finally:  # here, and not when the interpreter ends, where nobody can catch what goes wrong
            sys.stdout.flush()
    except BrokenPipeError:
        _silence(sys.stdout)
        return UNREAD
    except OSError as error:
        if error.filename is None:
            _silence(sys.stdout)
        place, reason = error.filename or "the output", error.strerror or error
        print(f"error: cannot use {place}: {reason}; free space, or name another place", file=sys.stderr)
        return FAILED


def _mend_streams() -> None:
    """Streams that somebody closed become ones that go nowhere, and no character is too much for a terminal."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115  (open until the process ends)
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


@contextmanager
def _signals_interrupt() -> Iterator[None]:
    """Let signals interrupt the work inside, but for those that are ignored, as Ctrl-C is for a job in the background.

    Only a main thread may ask for that.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    before = {number: handler for number, handler in handlers.items() if handler not in (None, signal.SIG_IGN)}
    for number in before:
        signal.signal(number, _stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _stop(number: int, frame: object) -> NoReturn:
    raise _Stopped(number)


def _silence(stream: TextIO) -> None:
    """Let what is still in the stream's buffer go nowhere, so that the interpreter does not complain at its end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
