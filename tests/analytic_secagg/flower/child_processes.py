"""Real processes of a test: started with a home of their own, found again by it, watched, and ended by number."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import re
import select
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

PORTS = range(20_000, 32_000)
"""Below the numbers that a system lends to outgoing connections, one of which would be in the way of a listener."""

_reserved: list[socket.socket] = []


def reserve_port() -> int:
    """A port of loopback that no other test of this machine is given while this process lives."""
    for port in PORTS:
        mine = socket.socket(socket.AF_UNIX)
        with contextlib.suppress(OSError), socket.socket() as probe:
            mine.bind(f"\0analytic-secagg-port-{port}")
            probe.bind(("127.0.0.1", port))
            _reserved.append(mine)
            return port
        mine.close()
    raise AssertionError(f"no port is free from {PORTS.start} to {PORTS.stop - 1}")


def wait_until(ready: Callable[[], T], what: str, *, seconds: float = 300, every: float = 0.5) -> T:
    """The first true answer of ``ready``. The seconds are a ceiling for a machine under load, not a pace."""
    ends = time.monotonic() + seconds
    while not (found := ready()):
        if time.monotonic() > ends:
            raise AssertionError(f"{what}: not within {seconds:g} seconds")
        time.sleep(every)
    return found


class WayOut:
    """A listener in place of the proxy to the world: whoever would call another host calls here, and waits for ever."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._callers: list[socket.socket] = []

    @property
    def environment(self) -> dict[str, str]:
        here = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        names = {"http_proxy": here, "https_proxy": here, "all_proxy": here, "no_proxy": "127.0.0.1,localhost"}
        return names | {name.upper(): value for name, value in names.items()}

    def requests(self) -> list[str]:
        """The first words of all who came since this was asked last; none should."""
        came = []
        while select.select([self._socket], [], [], 0)[0]:
            caller, _ = self._socket.accept()
            self._callers.append(caller)  # kept open, and never answered
            caller.settimeout(300)
            came.append(caller.recv(200).partition(b"\r\n")[0].decode(errors="replace"))
        return came

    def close(self) -> None:
        for open_socket in (self._socket, *self._callers):
            open_socket.close()


class Processes:
    """What a test started, and all that this started in turn: their FLWR_HOME, which each inherits, gives them away.

    Args:
        folder: holds each process's home and log.
        environment: of all of them.
    """

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self.folder, self._environment = folder, dict(environment)
        self._started: dict[str, subprocess.Popen[bytes]] = {}

    def home(self, name: str) -> Path:
        return self.folder / f"{name}-home"

    def environment(self, name: str) -> dict[str, str]:
        self.home(name).mkdir(exist_ok=True)
        return os.environ | self._environment | {"FLWR_HOME": str(self.home(name))}

    def start(self, name: str, command: Sequence[str], extra: Mapping[str, str] | None = None) -> None:
        """A process in a session of its own; its output goes to its log."""
        with (self.folder / f"{name}.log").open("wb") as log:
            self._started[name] = subprocess.Popen(
                command,
                env=self.environment(name) | dict(extra or {}),
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()

    def exit_code(self, name: str) -> int | None:
        return self._started[name].poll()

    def find(self, name: str, command: str = "") -> list[int]:
        """The numbers of the processes of a home whose command line holds this text."""
        return [pid for pid, home in self._alive() if home == self.home(name) and command in command_line(pid)]

    def kill(self, name: str) -> None:
        """SIGKILL to all of a home at once, as when a host loses power."""
        for pid in self.find(name):
            _kill(pid)

    def find_all(self) -> list[int]:
        """The numbers of the processes of all homes."""
        return [pid for pid, _ in self._alive()]

    def close(self) -> None:
        """End everything: politely what was started here, then by force what is left of its kin."""
        for process in self._started.values():
            process.terminate()
        with contextlib.suppress(AssertionError):
            wait_until(lambda: all(process.poll() is not None for process in self._started.values()), "", seconds=15)
        wait_until(self._none_is_left, "the end of all processes")

    def _none_is_left(self) -> bool:
        for process in self._started.values():
            process.poll()
        for pid, _ in (left := list(self._alive())):
            _kill(pid)
        return not left

    def _alive(self) -> Iterator[tuple[int, Path]]:
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                found = re.search(rb"(?:^|\0)FLWR_HOME=([^\0]*)", (entry / "environ").read_bytes())
                if found and (home := Path(os.fsdecode(found[1]))).parent == self.folder:
                    yield int(entry.name), home


def addresses(pids: Sequence[int]) -> set[str]:
    """Every address at which a socket of these processes listens, or which it has at one of its ends, now."""
    inodes = {inode for pid in pids for inode in _sockets(pid)}
    return {address for inode, address in _internet_sockets() if inode in inodes}


def command_line(pid: int) -> str:
    """Its words with spaces between, which every account of the host reads; empty for no process."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _sockets(pid: int) -> Iterator[str]:
    with contextlib.suppress(OSError):
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                if found := re.fullmatch(r"socket:\[(\d+)]", os.readlink(descriptor)):
                    yield found[1]


def _internet_sockets() -> Iterator[tuple[str, str]]:
    """The inode of each and its own address; and the same with the far end's, if it has one."""
    for table in ("tcp", "tcp6", "udp", "udp6"):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
                _, here, there, *_, inode = line.split()[:10]
                yield inode, _address(here)
                if not there.endswith(":0000"):
                    yield inode, _address(there)


def _address(text: str) -> str:
    """``0100007F:1F40``, as the kernel prints it in words of its own byte order, in the usual form without the port."""
    packed = b"".join(word[::-1] for word in re.findall(b"(?s)....", bytes.fromhex(text.partition(":")[0])))
    address = ipaddress.ip_address(packed)
    return str(getattr(address, "ipv4_mapped", None) or address)
