"""The set-up for real hosts: secrets for what runs apps, TLS inside a site, one approved app and no other."""

from __future__ import annotations

import contextlib
import os
import secrets
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="needs the extra: pip install '.[flower]'")

from loopback_deployment import Deployment, assert_exact

from analytic_secagg.certificates import Authority
from analytic_secagg.flower.trial import copy_template

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
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    with contextlib.closing(Deployment(tmp_path / "trial", n_sites=3, n_helpers=2)) as running:
        yield running


@pytest.mark.slow  # more than two minutes of real processes
def test_the_hardened_set_up(deployment: Deployment) -> None:
    """A run completes exactly; who has no secret gets no task; an app that was not approved does not run."""
    _start_server(deployment)
    deployment.register(deployment.sites)
    _approve_the_app(deployment)
    ports = [_start_site(deployment, site) for site in deployment.sites]
    strangers = _start_strangers(deployment, ports[0])
    foreign = deployment.submit(app=_foreign_app(deployment), **SETTINGS)
    run = deployment.submit(**SETTINGS)
    assert deployment.wait_ended(run) == "finished:completed", deployment.progress(run)
    assert_exact(deployment.trial, deployment.output(run), survivors=[1, 2, 3])
    assert deployment.wait_ended(foreign) == "finished:failed"
    ran = {site for site in deployment.sites if (_home(deployment, site) / "foreign-code-ran").exists()}
    assert ran == {FREE}
    for stranger, asked in strangers.items():
        deployment.wait(lambda name=stranger: not deployment.processes.find(name), f"the end of {stranger}")
        assert "Start `flwr-" not in deployment.processes.log(stranger)
        assert deployment.processes.log(asked).count(REFUSED) == list(strangers.values()).count(asked)


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
