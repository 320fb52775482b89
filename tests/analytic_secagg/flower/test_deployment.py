"""Real deployments on loopback: TLS, node keys, killed processes, one approved app, and Flower's own simulation."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="needs the extra: pip install '.[flower]'")

from child_processes import Processes, WayOut, reserve_port, wait_until
from loopback_deployment import ENVIRONMENT, FLOWERS_OWN, WARM, Deployment, assert_exact

from analytic_secagg.__main__ import main
from analytic_secagg.certificates import Authority
from analytic_secagg.flower.trial import copy_template, node_key_pair
from analytic_secagg.site.store import SessionStore
from secagg.dp import Ledger

CRASHING, KILLED = "site-4", "site-5"

PATIENT = {"join_seconds": 300.0, "round_seconds": 300.0}
"""Nothing here ends by its deadline, however slow the machine is."""


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    with contextlib.closing(Deployment(tmp_path / "trial", n_sites=5, n_helpers=2)) as running:
        yield running


@pytest.mark.parametrize("command", [WARM, pytest.param(FLOWERS_OWN, marks=pytest.mark.slow)], ids=["warm", "Flower's"])
def test_a_deployment_from_start_to_end(deployment: Deployment, command: str) -> None:
    """One deployment for all of it: processes take longer to start than a sum does.

    That a process is gone takes Flower a minute to notice, which the long form waits for.
    """
    deployment.start_superlink(command=command)
    _start_sites_and_a_stranger(deployment, command)
    killed = _the_serverapp_is_killed(deployment, command)
    _the_next_run_of_the_same_settings_goes_on(deployment, killed)
    run = _two_sites_are_killed(deployment, struck_off=[CRASHING, KILLED] if command == WARM else [CRASHING])
    _the_model_is_the_survivors(deployment, run)
    if command == FLOWERS_OWN:
        assert deployment.wait_status(killed) == "finished:failed"
    if command == WARM:
        _what_forks_is_killed(deployment)
    _the_sites_that_live_pay_for_a_noisy_run(deployment, command)
    assert deployment.tokens_seen == (command == FLOWERS_OWN)
    _the_stranger_was_refused(deployment)
    _nobody_spoke_to_another_host(deployment)


@pytest.mark.slow  # a minute of real processes
def test_the_dossier_of_a_run_verifies_in_a_process_that_has_nothing_else(
    deployment: Deployment, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """``ELSEWHERE`` may name another machine's Python, as ``.ci/elsewhere`` does."""
    deployment.start_superlink()
    deployment.register(deployment.sites)
    for site in deployment.sites:
        deployment.start_supernode(site)
    run = deployment.submit(mode="masked", receipts="clients", **PATIENT)
    assert deployment.wait_ended(run) == "finished:completed", deployment.progress(run)
    server, dossier = deployment.folder / "server", tmp_path / "dossier"
    words = ["dossier", str(deployment.output(run)), "--identity", str(server / "identity.key")]
    words += ["--roster", str(server / "roster.toml"), "--out", str(dossier)]
    words += [f"--receipt={path}" for path in sorted(deployment.folder.glob("site-*/results/*.receipt"))]
    words += [f"--site={path}" for path in sorted(deployment.folder.glob("site-*/site.toml"))]
    assert main(words) == 0
    command = capsys.readouterr().out.splitlines()[-1].split()
    with tempfile.TemporaryDirectory() as other:
        elsewhere = shutil.move(dossier, Path(other) / "filed")
        python = shlex.split(os.environ.get("ELSEWHERE", sys.executable))
        check = [*python, "-m", "analytic_secagg", command[1], str(elsewhere), *command[3:]]
        environment = {"PYTHONPATH": ENVIRONMENT["PYTHONPATH"], "PATH": ""}
        found = subprocess.run(check, cwd=other, env=environment, capture_output=True, text=True, check=False)
        assert (found.returncode, found.stderr) == (0, ""), found.stdout
        assert found.stdout.startswith("verified")
        assert len(list((Path(other) / "filed" / "receipts").iterdir())) == 5


def _start_sites_and_a_stranger(deployment: Deployment, command: str) -> None:
    """One site whose loader crashes when told to, and a node with a key that the operator did not register."""
    folder = deployment.folder / CRASHING
    text = (folder / "site.toml").read_text().replace('"rows.npz"', '"crash_when_asked:load"')
    (folder / "site.toml").write_text(text)
    (deployment.folder / "stranger.key").write_bytes(node_key_pair()[0])
    (deployment.folder / "stranger.key").chmod(0o600)
    crash = {
        "CRASH_WHEN": str(deployment.folder / "crash"),
        "CRASH_ROWS": str(folder / "rows.npz"),
        "PYTHONPATH": f"{Path(__file__).parent}{os.pathsep}{ENVIRONMENT['PYTHONPATH']}",
    }
    deployment.register(deployment.sites)
    for site in deployment.sites:
        deployment.start_supernode(site, extra=crash if site == CRASHING else None, command=command)
    refused = {"key": "stranger.key", "flags": "--isolation process"}  # no executor waits for its messages
    deployment.start_supernode("site-1", name="stranger", command=FLOWERS_OWN, **refused)


def _the_serverapp_is_killed(deployment: Deployment, command: str) -> str:
    """In the middle of a run. Flower takes a minute to notice; the next run need not wait for that."""
    run = deployment.submit(mode="masked", **PATIENT)
    deployment.wait_party(run, sent="ADVERTISED_KEYS")
    if command == WARM:
        *_, serverapp = _forked(deployment, "superlink")
        os.kill(serverapp, signal.SIGKILL)
        said = f"flwr-serverapp of task [0-9]+, process {serverapp}, ended with exit code -9"
        deployment.wait(lambda: re.search(said, deployment.processes.log("superlink")), said)
        return run
    serverapps = deployment.processes.find("superlink", "flwr-serverapp")
    assert serverapps, deployment.processes.log("superlink")
    for pid in serverapps:
        os.kill(pid, signal.SIGKILL)
    return run


def _the_next_run_of_the_same_settings_goes_on(deployment: Deployment, killed: str) -> None:
    """In the folder of the one that was killed, with its session: nobody is asked for a second vector."""
    again = deployment.submit(mode="masked", **PATIENT)
    deployment.wait_told(killed)
    assert deployment.wait_status(again) == "finished:completed", deployment.progress(killed)[-12:]
    assert not deployment.output(again).exists()
    assert_exact(deployment.trial, deployment.output(killed), [1, 2, 3, 4, 5])
    (went_on,) = (line for line in deployment.progress(killed) if line["event"] == "goes on")
    assert [one["session"] for one in deployment.summary(killed)["sums"]] == [went_on["session"]]


def _forked(deployment: Deployment, name: str) -> list[int]:
    """An executor, what it forked, and what that forked."""
    started = {}
    for pid in deployment.processes.find(name, "analytic_secagg.flower.superexec"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended since
            started[pid] = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    return sorted(started, key=started.__getitem__)


def _idle(deployment: Deployment, name: str) -> list[int]:
    """An executor and its fork server, once every process that was forked for a message has ended."""

    def both() -> list[int]:
        forked = _forked(deployment, name)
        return forked if len(forked) == 2 else []

    found: list[int] = deployment.wait(both, f"{name} has its executor and its fork server alone")
    return found


def _what_forks_is_killed(deployment: Deployment) -> None:
    """One site's executor and another's fork server; no message of the next run is lost with them."""
    executor, _ = _idle(deployment, "site-1")
    _, fork_server = _idle(deployment, "site-2")
    for pid in executor, fork_server:
        os.kill(pid, signal.SIGKILL)


def _two_sites_are_killed(deployment: Deployment, struck_off: Sequence[str]) -> str:
    """One when its vector is due, after it shared its keys; one when its masked vector has arrived.

    The operator strikes them off, which ends the wait for them; that others are gone is for Flower to notice.
    """
    (deployment.folder / "crash").touch()
    run = deployment.submit(mode="masked", receipts="server", **PATIENT)
    deployment.wait_party(run, party=5, sent="MASKED_INPUT")
    deployment.processes.kill(KILLED)
    deployment.wait(lambda: deployment.processes.exit_code(CRASHING), f"the end of {CRASHING}")
    for site in struck_off:
        deployment.unregister(site)
    assert deployment.wait_ended(run) == "finished:completed", deployment.progress(run)
    return run


def _the_model_is_the_survivors(deployment: Deployment, run: str) -> None:
    assert deployment.processes.exit_code(CRASHING) == -signal.SIGKILL
    said = {(line["party"], line["sent"]) for line in deployment.progress(run) if line["event"] == "party"}
    assert (4, "SEALED_SHARES") in said
    assert (5, "SURVIVOR_SIGNATURE") not in said
    assert_exact(deployment.trial, deployment.output(run), survivors=[1, 2, 3, 5])
    _what_it_left_verifies_offline(deployment, run, receipts=1)
    _no_session_is_left(deployment)


def _the_sites_that_live_pay_for_a_noisy_run(deployment: Deployment, command: str) -> None:
    """Their owners give the rows a budget; a node reads its site's file anew for each message."""
    ledgers = {}
    for party in (1, 2, 3):
        path = deployment.folder / f"site-{party}" / "site.toml"
        path.write_text(path.read_text() + '\n[privacy]\nepsilon = 8.0\nledger = "privacy.ledger"\n')
        assert main(["ledger", str(path)]) == 0
        ledgers[party] = Ledger.open(path.parent / "privacy.ledger")
    noise = {"epsilon": 8.0, "noise_survivors": 3, "noise_colluders": 1}
    run = deployment.submit(mode="committee", nodes=3, receipts="helpers", **noise, **PATIENT)
    assert deployment.wait_ended(run) == "finished:completed", deployment.progress(run)
    assert deployment.summary(run)["survivors"] == [[1, 2, 3]] * 2
    assert ("ended with exit code -9; it is started again" in deployment.processes.log("site-1")) == (command == WARM)
    assert ("the process that forks for messages has ended" in deployment.processes.log("site-2")) == (command == WARM)
    assert deployment.summary(run)["privacy"]["epsilon"] == 8.0
    _what_it_left_verifies_offline(deployment, run, receipts=3)
    assert [[one.label for one in ledger.releases] for ledger in ledgers.values()] == [["mean", "statistics"]] * 3


def _what_it_left_verifies_offline(deployment: Deployment, run: str, *, receipts: int) -> None:
    """The server's model, totals and receipts; each living site's own receipts so far, and the same model."""
    output, flags = deployment.output(run), list[str]()
    for party in (1, 2, 3):
        results = deployment.folder / f"site-{party}" / "results"
        kept = sorted(results.glob("*.receipt"))
        assert len(kept) == receipts
        flags += [text for path in kept for text in ("--receipt", str(path))]
        name = f"model-{deployment.summary(run)['weights_sha256'][:16]}.safetensors"
        assert (results / name).read_bytes() == (output / "model.safetensors").read_bytes()
        assert not list(results.glob("totals-*"))
    files = [str(output / name) for name in ("model.safetensors", "totals.safetensors")]
    assert main(["verify", *files, "--roster", str(deployment.folder / "server" / "roster.toml"), *flags]) == 0


def _no_session_is_left(deployment: Deployment) -> None:
    """Of both runs, also of the one whose ServerApp was killed, the sites that live hold nothing but its id."""
    for party in (1, 2, 3):
        folder = SessionStore(deployment.folder / f"site-{party}" / "state")
        with folder.locked():
            assert folder.held() == ()
            assert folder.run("SELECT count(*) FROM sessions WHERE invitation IS NULL") == [(2,)]


def _the_stranger_was_refused(deployment: Deployment) -> None:
    """It ended by itself and was never online."""
    deployment.wait(lambda: deployment.processes.exit_code("stranger"), "the end of the stranger")
    assert "2004" in deployment.processes.log("stranger")
    assert "SuperNode ID:" not in deployment.processes.log("stranger")


def _nobody_spoke_to_another_host(deployment: Deployment) -> None:
    assert deployment.addresses_seen == {"127.0.0.1"}
    assert deployment.way_out.requests() == []


def test_what_flower_would_tell_its_makers_is_noticed(tmp_path: Path) -> None:
    """The twin of ``way_out`` above: with telemetry on, somebody takes it."""
    way_out = WayOut()
    telling = Processes(tmp_path, ENVIRONMENT | way_out.environment | {"FLWR_TELEMETRY_ENABLED": "1"})
    try:
        program = "from flwr.supercore import telemetry; telemetry.event(telemetry.EventType.PING).result()"
        telling.start("telling", [sys.executable, "-c", program])
        wait_until(way_out.requests, "a call to Flower's makers")
    finally:
        telling.close()
        way_out.close()


PINNED, FREE = ("site-1", "site-2"), "site-3"
"""The last site forgot to pin the approved app, which shows what the others are spared."""

SETTINGS = {"mode": "committee", "join_seconds": 300.0, "round_seconds": 300.0}

SUPEREXEC = f"{sys.executable} -m analytic_secagg.flower.superexec"

WITHOUT_POWERS = "setpriv --bounding-set=-all --inh-caps=-all " if os.geteuid() == 0 else ""
"""Root writes in a read-only folder unless it gives its powers up. A site's account should not be root at all."""

REFUSED = "SuperExec authentication failed"

FOREIGN_CODE = """\
import os
from pathlib import Path
from flwr.clientapp import ClientApp
app = ClientApp()
Path(os.environ["FLWR_HOME"], "foreign-code-ran").touch()
"""


@pytest.fixture
def hardened(tmp_path: Path) -> Iterator[Deployment]:
    with contextlib.closing(Deployment(tmp_path / "trial", n_sites=3, n_helpers=2)) as running:
        yield running


@pytest.mark.slow  # more than two minutes of real processes
def test_the_hardened_set_up(hardened: Deployment) -> None:
    """A run completes exactly; who has no secret gets no task; an app that was not approved does not run."""
    _start_server(hardened)
    hardened.register(hardened.sites)
    _approve_the_app(hardened)
    ports = [_start_site(hardened, site) for site in hardened.sites]
    strangers = _start_strangers(hardened, ports[0])
    foreign = hardened.submit(app=_foreign_app(hardened), **SETTINGS)
    run = hardened.submit(**SETTINGS)
    assert hardened.wait_ended(run) == "finished:completed", hardened.progress(run)
    assert_exact(hardened.trial, hardened.output(run), survivors=[1, 2, 3])
    assert hardened.wait_ended(foreign) == "finished:failed"
    ran = {site for site in hardened.sites if (_home(hardened, site) / "foreign-code-ran").exists()}
    assert ran == {FREE}
    for stranger, asked in strangers.items():
        hardened.wait(lambda name=stranger: not hardened.processes.find(name), f"the end of {stranger}")
        assert "Start `flwr-" not in hardened.processes.log(stranger)
        assert hardened.processes.log(asked).count(REFUSED) == list(strangers.values()).count(asked)


def _start_server(deployment: Deployment) -> None:
    """The SuperLink, which runs no app itself, and the process that does."""
    _write_secret(deployment, "server")
    deployment.start_superlink("--database flower.db --isolation process --superexec-auth-secret-file server.secret")
    deployment.start(
        "server-superexec",
        f"{SUPEREXEC} --runtime-api-address {deployment.address} --root-certificates tls/ca.crt "
        "--superexec-auth-secret-file server.secret",
        {"ANALYTIC_SECAGG_SERVER": str(deployment.folder / "server" / "server.toml")},
    )


def _start_site(deployment: Deployment, site: str) -> int:
    """The SuperNode, and the process that runs its ClientApp; they speak TLS inside the site too."""
    _write_secret(deployment, site)
    authority = Authority()
    certificates = (authority.certificate, *authority.issue("localhost", "127.0.0.1"))
    for name, content in zip(("local-ca.crt", "local.crt", "local.key"), certificates, strict=True):
        (deployment.folder / f"{site}.{name}").write_bytes(content)
    port = deployment.start_supernode(
        site,
        flags=f"--isolation process --superexec-auth-secret-file {site}.secret --ssl-certfile {site}.local.crt "
        f"--ssl-keyfile {site}.local.key --ssl-ca-certfile {site}.local-ca.crt",
    )
    deployment.start(
        f"{site}-superexec",
        f"{WITHOUT_POWERS}{SUPEREXEC} --runtime-api-address 127.0.0.1:{port} "
        f"--root-certificates {site}.local-ca.crt --superexec-auth-secret-file {site}.secret",
    )
    return port


def _write_secret(deployment: Deployment, name: str) -> None:
    path = deployment.folder / f"{name}.secret"
    path.write_text(secrets.token_hex(32))
    path.chmod(0o600)


def _approve_the_app(deployment: Deployment) -> None:
    """Build the app once; each careful site installs it and lets no other be installed."""
    assert deployment.flwr_text("build", "--app", "app").returncode == 0
    (bundle,) = deployment.folder.glob("*.fab")
    for site in PINNED:
        done = deployment.flwr_text("install", bundle.name, home=f"{site}-superexec")
        assert done.returncode == 0, done.stderr
        (_home(deployment, site) / "apps").chmod(0o555)


def _foreign_app(deployment: Deployment) -> str:
    """An app of the same name and version that brings code of its own for the sites."""
    folder = deployment.folder / "foreign"
    copy_template(folder)
    (folder / "foreign_client.py").write_text(FOREIGN_CODE)
    ours = (folder / "pyproject.toml").read_text()
    foreign = ours.replace("analytic_secagg.flower.client:app", "foreign_client:app")
    assert foreign != ours
    (folder / "pyproject.toml").write_text(foreign)
    return folder.name


def _start_strangers(deployment: Deployment, port: int) -> dict[str, str]:
    """Processes that ask for work without the secret, or with another one; the name of each and of whom it asks."""
    _write_secret(deployment, "stranger")
    server = f"flower-superexec --runtime-api-address {deployment.address} --root-certificates tls/ca.crt"
    site = f"flower-superexec --runtime-api-address 127.0.0.1:{port} --root-certificates site-1.local-ca.crt"
    deployment.start("stranger-1", server)
    deployment.start("stranger-2", f"{server} --superexec-auth-secret-file stranger.secret")
    deployment.start("stranger-3", site)
    return {"stranger-1": "superlink", "stranger-2": "superlink", "stranger-3": "site-1"}


def _home(deployment: Deployment, site: str) -> Path:
    return deployment.processes.home(f"{site}-superexec")


N_SITES = 5


@pytest.fixture
def simulated(tmp_path: Path) -> Iterator[Deployment]:
    """Ray's sockets need a path of less than 107 bytes, so its own folder lies elsewhere."""
    folder = tmp_path / "trial"
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp") as ray:
        environment = {
            "ANALYTIC_SECAGG_SERVER": str(folder / "server" / "server.toml"),
            "ANALYTIC_SECAGG_SITES": str(folder),
            "FLWR_LOCAL_SUPERLINK_HTTP_API_PORT": str(reserve_port()),
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # Ray's word for: listen on loopback alone
            "HOME": str(folder / "operator-home"),
            "RAY_TMPDIR": ray,
        }
        running = Deployment(folder, n_sites=N_SITES, n_helpers=2, superlink="local", environment=environment)
        # With this file there Ray does not ask the metadata addresses of clouds where it is.
        (folder / "operator-home" / "ray_bootstrap_config.yaml").write_text("{}\n")
        with contextlib.closing(running):
            yield running


@pytest.mark.skipif(
    find_spec("ray") is None, reason="Flower's simulation engine needs Ray: pip install 'flwr[simulation]'"
)
@pytest.mark.slow  # starts Ray, which not every machine lets run; half a minute
def test_flwr_run_over_a_trial(simulated: Deployment) -> None:
    """Node k is site k + 1, the model is exact, and nobody speaks to another host."""
    size = f"num-supernodes={N_SITES} client-resources-num-cpus=1"
    run = simulated.submit("--federation-config", size, mode="committee", join_seconds=300.0, round_seconds=300.0)
    assert simulated.wait_ended(run) == "finished:completed", simulated.progress(run)
    assert_exact(simulated.trial, simulated.output(run), survivors=list(simulated.trial.rows))
    assert simulated.addresses_seen == {"127.0.0.1"}
    assert simulated.way_out.requests() == []
