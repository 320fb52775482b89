"""A process that waits for messages holds nothing of them, and Flower's processes look for them when some come."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="needs the extra: pip install '.[flower]'")

from analytic_secagg.flower import fork_server, replaced, supernode
from analytic_secagg.site.errors import DeploymentError

ROOT = Path(__file__).resolve().parents[3]

FORKS = r"""
import hashlib, json, multiprocessing.connection, os, random, signal, subprocess, sys, threading, time
from pathlib import Path
import tenseal
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from analytic_secagg.flower import fork_server
from analytic_secagg.flower.superexec import ForkingExecutor
from flwr.supercore.constant import TaskType
from flwr.supercore.superexec.executor.types import ExecutionSpec
from secagg.entropy import os_entropy

context = tenseal.context(tenseal.SCHEME_TYPE.BFV, 4096, 1032193)
X25519PrivateKey.generate(), os_entropy(16), tenseal.bfv_vector(context, [1])
here = Path(__file__)
seen, generator = [], random.Random()

def answer():
    here.with_name(sys.argv[4]).touch()
    seen.append(sys.argv[4])
    sys.stdout.write(json.dumps({
        "process": os.getpid(),
        "seen": seen,
        "key": X25519PrivateKey.generate().private_bytes_raw().hex(),
        "entropy": os_entropy(16).hex(),
        "ciphertext": hashlib.sha256(tenseal.bfv_vector(context, [1]).serialize()).hexdigest(),
        "mersenne": generator.random(),
        "parent": os.getppid(),
        "command lines": [Path(f"/proc/{pid}/cmdline").read_text() for pid in ("self", os.getppid(), sys.argv[-1])],
    }) + "\n")
    sys.stdout.flush()
    os._exit(3 if seen == ["token-3"] else 0)

def launch(executor, task, type_=TaskType.CLIENT_APP):
    spec = ExecutionSpec(type_, "127.0.0.1:1", f"token-{task}", False, f"/proc/{os.getpid()}", False, None, False, task)
    return executor.launch(spec)

COMMANDS = {"flwr-clientapp": answer}
fork_server.log_as_json()
if len(sys.argv) > 1:
    sys.exit(fork_server.serve(COMMANDS, multiprocessing.connection.Connection(int(sys.argv[1]))))
fork_server.SECONDS_OF_THE_DEAD = 0.1
executor = ForkingExecutor(fork_server.ForkServer(COMMANDS, [sys.executable, __file__]), fork_server.Backoff())
for task in 1, 2, 3:
    assert launch(executor, task).status == "accepted"
(forks,) = map(int, Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())
while len(list(here.parent.glob("token-*"))) < 3 or Path(f"/proc/{forks}/task/{forks}/children").read_text():
    time.sleep(0.05)
print(json.dumps({"refused": launch(executor, 4, TaskType.MODEL).message}), flush=True)
print(json.dumps({"asked for": list(executor.get_eligible_capacity(set(TaskType))[0])}), flush=True)
launch(executor, 5)  # whoever begins it has logged what ended before
os.kill(forks, signal.SIGSTOP)
threading.Timer(0.5, os.kill, (forks, signal.SIGKILL)).start()  # with an order that it did not begin
launch(executor, 6)
"""


def run(script: str, tmp_path: Path) -> tuple[list[dict[str, Any]], list[dict[str, str]]]:
    """What it prints and what it logs, all lines of JSON."""
    (tmp_path / "script.py").write_text(script)
    words = [sys.executable, str(tmp_path / "script.py")]
    done = subprocess.run(
        words, capture_output=True, text=True, timeout=900, env=os.environ | {"PYTHONPATH": str(ROOT)}
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()], [
        json.loads(line) for line in done.stderr.splitlines()
    ]


def test_every_message_has_a_process_and_secrets_of_its_own(tmp_path: Path) -> None:
    """All is warm before the forks, the generators too. One in memory shows what a fork repeats; no secret is of it.

    No command line names a token, what is not Flower's two apps is refused, a fork that ends badly is logged, and the
    message that the forks had taken when it was killed has an answer.
    """
    said, logged = run(FORKS, tmp_path)
    answers = [line for line in said if "seen" in line]
    assert sorted(answer["seen"] for answer in answers) == [[f"token-{task}"] for task in (1, 2, 3, 5, 6)]
    for name in ("process", "key", "entropy", "ciphertext"):
        assert len({answer[name] for answer in answers}) == 5, name
    first = [answer for answer in answers if answer["seen"] != ["token-6"]]
    assert len({answer["mersenne"] for answer in first}) == len({answer["parent"] for answer in first}) == 1
    assert len({answer["parent"] for answer in answers}) == 2
    assert not [line for answer in answers for line in answer["command lines"] if "token" in line]
    refusal = "this executor runs flwr-clientapp and flwr-serverapp, not flwr-model; use Flower's own"
    assert {"refused": refusal} in said
    assert sorted(next(line["asked for"] for line in said if "asked for" in line)) == [
        "flwr-clientapp",
        "flwr-serverapp",
    ]
    (bad,) = [answer["process"] for answer in answers if answer["seen"] == ["token-3"]]
    assert [(line["level"], line["logger"], line["message"]) for line in logged] == [
        ("ERROR", "analytic_secagg.flower", f"flwr-clientapp of task 3, process {bad}, ended with exit code 3"),
        (
            "WARNING",
            "analytic_secagg.flower",
            "the process that forks for messages has ended; another is started in its place",
        ),
    ]


KILLED = r"""
import os, signal, sys, time
from pathlib import Path
from analytic_secagg.flower import fork_server

fork_server.log_as_json()
noted = Path(__file__).with_name("started")
noted.touch()
sleeper = "import os, time; print(os.getpid(), flush=True); time.sleep(900)"
fork_server.start_again([sys.executable, "-c", sleeper], stdout=noted.open("a"))
for number in 1, 2:
    while len(started := noted.read_text().split()) < number:
        time.sleep(0.05)
    os.kill(int(started[-1]), signal.SIGKILL)
print(started[0])
"""


def test_an_executor_that_is_killed_is_started_again(tmp_path: Path) -> None:
    (process,), (line,) = run(KILLED, tmp_path)
    said = f"the executor, process {process}, ended with exit code -9; it is started again"
    assert (line["level"], line["message"]) == ("ERROR", said)


def test_pauses_grow_with_the_time_since_the_last_message(monkeypatch: pytest.MonkeyPatch) -> None:
    paused: list[float] = []
    monkeypatch.setattr(fork_server.time, "sleep", paused.append)
    backoff = fork_server.Backoff(answer_seconds=supernode.ANSWER_SECONDS)
    for _ in range(40):
        backoff.sleep(3.0)
    assert all(pause <= 0.1 + sum(paused[:number]) / 10 + 1e-9 for number, pause in enumerate(paused))
    assert paused[-1] == 3.0
    backoff.sleep(0.5)  # Flower waits for an answer to a message
    backoff.sleep(3.0)
    assert paused[-2:] == [0.1, 0.1 * fork_server.GROWTH]


def test_an_executor_that_shall_look_often_is_not_kept_awake_by_that(monkeypatch: pytest.MonkeyPatch) -> None:
    """With FLWR_SUPEREXEC_TASK_POLL_INTERVAL below a second it looked ten times a second for ever."""
    paused: list[float] = []
    monkeypatch.setattr(fork_server.time, "sleep", paused.append)
    backoff = fork_server.Backoff()
    for _ in range(40):
        backoff.sleep(0.3)
    assert paused[-1] == 0.3
    backoff.wake()
    backoff.sleep(0.3)
    assert paused[-1] == 0.1


def test_a_full_system_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fork that fails ends nothing, and no message is lost with it."""
    answers: list[BlockingIOError | int] = [BlockingIOError("no room for another process"), 7]
    paused: list[float] = []

    def fork() -> int:
        answer = answers.pop(0)
        if isinstance(answer, int):
            return answer
        raise answer

    monkeypatch.setattr(fork_server.os, "fork", fork)
    monkeypatch.setattr(fork_server.time, "sleep", paused.append)
    assert (fork_server._fork(), paused) == (7, [1.0])


def test_a_flower_that_has_changed_is_not_run() -> None:
    with pytest.raises(DeploymentError, match=r"flwr\.app of this version of Flower uses no time; install flwr>="):
        replaced.replace("flwr.app", time=object())


def test_the_executor_is_flowers_own(tmp_path: Path) -> None:
    """It takes its flags, and says so."""
    command = [sys.executable, "-m", "analytic_secagg.flower.superexec", "--help"]
    environment = os.environ | {"FLWR_HOME": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, env=environment)
    assert "usage: flower-superexec" in done.stdout, done.stderr
