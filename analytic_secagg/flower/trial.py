"""A trial's folder for Flower: beside keys, roster and sites the app, the SuperLink's certificate, the nodes' keys."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from analytic_secagg.certificates import Authority
from analytic_secagg.datasets import Dataset
from analytic_secagg.site.errors import SiteFileError
from analytic_secagg.site.key_files import write_new
from analytic_secagg.site.source import SiteTable
from analytic_secagg.site.strict_models import read_toml
from analytic_secagg.trial import Trial, fitted_settings, new_folder

CONFIG = """\
[superlink]
default = "trial"

[superlink.trial]
address = "{address}"
root-certificates = "{authority}"

[superlink.local]
address = ":local-in-memory:"
"""


def make_trial(
    folder: Path, dataset: Dataset, *, n_sites: int, n_helpers: int, address: str, tables: Sequence[SiteTable] = ()
) -> Trial:
    """Return a fresh trial with ``app``, ``tls``, ``operator-home`` and a node's key at each site.

    The rows of a trial are public, and its sites let them into as many totals as are asked for.

    Raises:
        SiteFileError: as ``Trial.create``.
    """
    with new_folder(folder):
        copy_template(folder / "app")
        _write_tls(folder, address)
        trial = Trial.fill(folder, dataset, n_sites=n_sites, n_helpers=n_helpers, are_rows_public=True, tables=tables)
        _fit_app(folder / "app" / "pyproject.toml", fitted_settings(dataset, n_sites))
        for party in trial.rows:
            secret, public = node_key_pair()
            write_new(folder / f"site-{party}" / "node", secret)
            (folder / f"site-{party}" / "node.pub").write_bytes(public)
    return trial


def node_key_pair() -> tuple[bytes, bytes]:
    """A SuperNode's key in OpenSSH form, secret and public, as ``ssh-keygen -t ecdsa -b 384`` makes them."""
    key = ec.generate_private_key(ec.SECP384R1())
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    return secret, key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)


def copy_template(folder: Path) -> None:
    """Put the thin Flower app there.

    Raises:
        SiteFileError: something is there already, or the system refused.
    """
    with new_folder(folder), as_file(files("analytic_secagg.flower") / "template") as template:
        shutil.copytree(template, folder, dirs_exist_ok=True)


def app_settings(folder: Path) -> dict[str, Any]:
    """The settings that an app runs with where nobody overrides them.

    Raises:
        SiteFileError: the folder holds no such app.
    """
    path = folder / "pyproject.toml"
    if not path.exists():
        raise SiteFileError(f"an app has {path}, which is not there; make a folder with the command app or trial")
    try:
        return dict(read_toml(path)["tool"]["flwr"]["app"]["config"])
    except KeyError as error:
        raise SiteFileError(
            f"{path} needs the table [tool.flwr.app.config]; make the app again with the command app"
        ) from error


def _fit_app(path: Path, settings: Mapping[str, object]) -> None:
    """Let the app's configuration say these settings."""
    text = path.read_text(encoding="utf-8")
    for key, value in settings.items():
        written = f'"{value}"' if isinstance(value, str) else value
        text = re.sub(rf"^{key} = .*$", f"{key} = {written}", text, count=1, flags=re.MULTILINE)
    path.write_text(text, encoding="utf-8")


def _write_tls(folder: Path, address: str) -> None:
    authority = Authority()
    certificate, key = authority.issue("localhost", "127.0.0.1")
    tls, home = folder / "tls", folder / "operator-home"
    tls.mkdir()
    home.mkdir()
    (tls / "ca.crt").write_bytes(authority.certificate)
    (tls / "server.crt").write_bytes(certificate)
    write_new(tls / "server.key", key)
    config = CONFIG.format(address=address, authority=(tls / "ca.crt").resolve())
    (home / "config.toml").write_text(config)
