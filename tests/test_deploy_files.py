"""The container file and compose file name a version, modules and flags that there are."""

from __future__ import annotations

import json
import re
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest
from support.extras import needs

from analytic_secagg.__main__ import SECTIONS

ROOT = Path(__file__).resolve().parents[1]
CONTAINER = (ROOT / "deploy" / "Containerfile").read_text(encoding="utf-8")
COMPOSE = (ROOT / "deploy" / "compose.yaml").read_text(encoding="utf-8")
HOW_TO = "".join(
    (ROOT / "docs" / "how-to" / page).read_text(encoding="utf-8") for page in ("try-flower.md", "deploy-with-flower.md")
)


def test_the_image_is_of_this_version_and_holds_locked_versions() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert set(re.findall(r"analytic_secagg-([0-9.]+)-py3", CONTAINER)) == {version}
    assert set(re.findall(r"image: analytic-secagg:(\S+)", COMPOSE)) == {version}
    assert "--require-hashes" in CONTAINER
    for copied in re.findall(r"^COPY (\S+) ", CONTAINER, re.MULTILINE):
        assert copied.startswith("dist/") or (ROOT / copied).exists()


def test_the_image_runs_as_nobody_special_and_without_telemetry() -> None:
    assert CONTAINER.index("USER 10001") < CONTAINER.index("ENTRYPOINT")
    page = re.findall(r"^export (FLWR_TELEMETRY_ENABLED.*)$", HOW_TO, re.MULTILINE)[-1]
    assert all(setting in CONTAINER for setting in page.split())


@pytest.mark.parametrize("name", ["server", "site", "helper"])
def test_a_service_starts_a_command_of_the_how_to(name: str) -> None:
    service = needs("yaml").safe_load(COMPOSE)["services"][name]
    module, *flags = service["command"]
    assert find_spec("flwr") is None or find_spec(module) is not None
    assert f"python -m {module} " in HOW_TO
    for flag in flags:
        assert re.search(rf"{flag.split('=')[0]}\b", HOW_TO), flag
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]


def test_every_command_of_the_files_exists() -> None:
    services = needs("yaml").safe_load(COMPOSE)["services"].values()
    checks = [service["healthcheck"]["test"] for service in services if "healthcheck" in service]
    started = [json.loads(match) for match in re.findall(r"^CMD (\[.*\])$", CONTAINER, re.MULTILINE)]
    named = [words[words.index("analytic_secagg") + 1] for words in [*checks, *started]]
    assert {"doctor", "health"} <= set(named) <= {command.name for section in SECTIONS.values() for command in section}
