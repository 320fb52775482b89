"""Secret keys as files that only their owner can read: 32 bytes in hexadecimal, mode 0600."""

from __future__ import annotations

import os
import re
import stat
from contextlib import suppress
from pathlib import Path

from analytic_secagg.site.errors import SiteFileError


def write_secret(path: Path, secret: bytes) -> None:
    """Create the file; one that is there is never replaced.

    Raises:
        SiteFileError: the file exists already, or its folder cannot be written to.
    """
    try:
        write_new(path, f"{secret.hex()}\n".encode("ascii"))
    except FileExistsError:
        raise SiteFileError(f"{path} exists already; a key is never overwritten: move the old one away") from None
    except OSError as error:
        raise SiteFileError(f"cannot write {path}: {error.strerror}; name another place") from error


def read_secret(path: Path) -> bytes:
    """The 32 bytes of a key file; from then on this process leaves no core dump.

    Raises:
        SiteFileError: there is no such file, others may read it, or it holds no key.
    """
    with suppress(ImportError):  # POSIX systems have it
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode & 0o077:
            raise SiteFileError(f"{path} must be readable by its owner alone, its mode is {mode:04o}; chmod 600 it")
        text = path.read_text(encoding="ascii", errors="replace").strip()
    except OSError as error:
        raise SiteFileError(
            f"cannot read the key {path}: {error.strerror}; make one with the command identity"
        ) from error
    if not re.fullmatch("[0-9a-f]{64}", text):
        raise SiteFileError(f"{path} must hold 64 hexadecimal digits; make a key with identity")
    return bytes.fromhex(text)


def write_new(path: Path, content: bytes) -> None:
    """Create a file that its owner alone can read; one that is there is never replaced."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
    except BaseException:
        path.unlink()  # half a key is none
        raise
