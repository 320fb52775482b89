"""A process that waits for messages holds nothing of them, and Flower's processes look for them when some come."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from federation.flower import warm
from federation.site.errors import DeploymentError

FORKS = r"""
import hashlib, json, os, random, subprocess, sys
import tenseal
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from federation.flower.superexec import start
from federation.flower.warm import Nursery, Pace
from secagg.entropy import os_entropy

context = tenseal.context(tenseal.SCHEME_TYPE.BFV, 4096, 1032193)
X25519PrivateKey.generate(), os_entropy(16), tenseal.bfv_vector(context, [1])
seen, generator = [], random.Random()

def answer():
    seen.append(sys.argv[1])
    sys.stdout.write(json.dumps({
        "process": os.getpid(),
        "seen": seen,
        "key": X25519PrivateKey.generate().private_bytes_raw().hex(),
        "entropy": os_entropy(16).hex(),
        "ciphertext": hashlib.sha256(tenseal.bfv_vector(context, [1]).serialize()).hexdigest(),
        "mersenne": generator.random(),
    }) + "\n")
    sys.stdout.flush()

nursery = Nursery({"answer": answer})
for number in "123":
    start(nursery, Pace(), ["answer", number])
start(nursery, Pace(), ["answer", "quiet"], subprocess.DEVNULL, subprocess.DEVNULL)
start(nursery, Pace(), ["echo", '{"process": "another program"}'])
"""


def test_every_message_has_a_process_and_secrets_of_its_own() -> None:
    """All is warm before the forks, the generators too. One in memory shows what a fork repeats; no secret is of it."""
    done = subprocess.run([sys.executable, "-c", FORKS], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    said = [json.loads(line) for line in done.stdout.splitlines()]
    assert {"process": "another program"} in said
    answers = [line for line in said if "seen" in line]
    assert sorted(answer["seen"] for answer in answers) == [["1"], ["2"], ["3"]]
    for name in ("process", "key", "entropy", "ciphertext"):
        assert len({answer[name] for answer in answers}) == 3, name
    assert len({answer["mersenne"] for answer in answers}) == 1


def test_pauses_grow_with_the_time_since_the_last_message(monkeypatch: pytest.MonkeyPatch) -> None:
    paused: list[float] = []
    monkeypatch.setattr(warm.time, "sleep", paused.append)
    pace = warm.Pace()
    for _ in range(40):
        pace.sleep(3.0)
    assert all(pause <= 0.1 + sum(paused[:number]) / 5 + 1e-9 for number, pause in enumerate(paused))
    assert paused[-1] == 3.0
    pace.sleep(0.5)  # Flower waits for an answer to a message
    pace.sleep(3.0)
    assert paused[-2:] == [0.1, 0.1 * warm.GROWTH]


def test_a_full_system_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fork that fails ends nothing, and no message is lost with it."""
    answers: list[BlockingIOError | int] = [BlockingIOError("no room for another process"), 7]
    paused: list[float] = []

    def fork() -> int:
        answer = answers.pop(0)
        if isinstance(answer, int):
            return answer
        raise answer

    monkeypatch.setattr(warm.os, "fork", fork)
    monkeypatch.setattr(warm.time, "sleep", paused.append)
    assert (warm._fork(), paused) == (7, [1.0])


def test_a_flower_that_has_changed_is_not_run() -> None:
    with pytest.raises(DeploymentError, match=r"flwr\.new of this version of Flower uses no time; install flwr>="):
        warm.replace(ModuleType("flwr.new"), time=object())


def test_the_executor_is_flowers_own(tmp_path: Path) -> None:
    """It takes its flags, and says so."""
    command = [sys.executable, "-m", "federation.flower.superexec", "--help"]
    environment = os.environ | {"FLWR_HOME": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
    assert "usage: flower-superexec" in done.stdout, done.stderr
