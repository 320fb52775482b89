"""The pages of deployments name what is there: commands, keys of files and of the run, error texts."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from analytic_secagg.__main__ import SECTIONS
from analytic_secagg.commands.site import COMMANDS as OF_SITES
from analytic_secagg.flower.commands import COMMANDS
from analytic_secagg.server.run_settings import RunSettings
from analytic_secagg.server.server_file import ServerFile
from analytic_secagg.site.errors import REASONS, Refusal
from analytic_secagg.site.key_files import write_secret
from analytic_secagg.site.reading import Reading
from analytic_secagg.site.roster import Roster
from analytic_secagg.site.site_file import SiteFile
from analytic_secagg.trial import Trial
from simulations.__main__ import EXPERIMENTS

ROOT = Path(__file__).resolve().parents[3]
FILES = (ROOT / "docs" / "reference" / "site-files.md").read_text(encoding="utf-8")
SETTINGS = (ROOT / "docs" / "reference" / "run-settings.md").read_text(encoding="utf-8")
FAILURES = (ROOT / "docs" / "how-to" / "troubleshoot.md").read_text(encoding="utf-8")
HOW_TO = "".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "how-to").glob("*.md"))


def toml_block(first: str) -> str:
    """The TOML block that begins with this line's start."""
    blocks = [block for block in re.findall(r"```toml\n(.*?)```", FILES, re.DOTALL) if block.startswith(first)]
    return str(blocks[0])


def test_every_command_exists() -> None:
    assert set(re.findall(r"analytic-secagg flower ([a-z-]+)", HOW_TO)) == {command.name for command in COMMANDS}
    named = set(re.findall(r"^(?:\$ )?analytic-secagg ([a-z-]+)", HOW_TO, re.MULTILINE))
    known = {one.name for section in (EXPERIMENTS, *SECTIONS.values()) for one in section}
    assert named <= known
    assert {command.name for command in OF_SITES} <= {*re.findall(r"analytic-secagg ([a-z-]+)", HOW_TO)}


def test_every_setting_is_explained_and_in_the_template() -> None:
    keys = {name.replace("_", "-") for name in RunSettings.__annotations__}
    template = tomllib.loads((ROOT / "analytic_secagg" / "flower" / "template" / "pyproject.toml").read_text())
    assert template["tool"]["flwr"]["app"]["config"].keys() == keys
    explained = re.findall(r"^\| (`[a-z-]+`(?:, `[a-z-]+`)*) \|", SETTINGS, re.MULTILINE)
    assert {key for cell in explained for key in re.findall(r"`([a-z-]+)`", cell)} == keys


def test_the_files_of_the_page_are_read_as_they_stand(trial: Trial) -> None:
    """The site.toml for site 3, made helper and key holder too, with the keys of the trial, and its server.toml."""
    folder = trial.folder / "site-3"
    (folder / "site.toml").write_text(toml_block('roster = "roster.toml"\nstate'))
    write_secret(folder / "helper.key", bytes.fromhex((trial.folder / "site-1" / "helper.key").read_text()))
    (holder,) = trial.folder.glob("site-*/key-holder.key")
    write_secret(folder / "key-holder.key", bytes.fromhex(holder.read_text()))
    site = SiteFile.read(folder / "site.toml")
    assert site.client is not None
    parties = (site.client.party, *(own.party for own in site.helpers))
    assert (parties, site.policy.modes) == ((3, 101, 201), {"masked"})
    (trial.folder / "server" / "server.toml").write_text(toml_block('roster = "roster.toml"\nidentity'))
    assert ServerFile.read(trial.folder / "server" / "server.toml").output.name == "models"


def test_the_first_site_file_reads_its_table_as_it_stands(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the table, the schema and the reading of the page about tables."""
    folder = trial.folder / "site-1"
    monkeypatch.chdir(folder)
    tables = (ROOT / "docs" / "how-to" / "read-tables.md").read_text(encoding="utf-8")
    for snippet in re.findall(r"^```python\n(.*?)^```", tables, re.DOTALL | re.MULTILINE)[:2]:
        exec(snippet, {"Path": Path})
    reading = Reading.read("site.toml")
    deploy = (ROOT / "docs" / "how-to" / "deploy-with-flower.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"^```toml\n(.*?)^```", deploy, re.DOTALL | re.MULTILINE)
    (folder / "site.toml").write_text(text, encoding="utf-8")
    site = SiteFile.read(folder / "site.toml")
    assert site.client is not None
    assert site.client.reading == reading
    assert site.client.rows().features.tolist()[2] == [73, 1, 0, 6.75 * 38.67, 0, 0, 1]
    assert (site.client.party, site.policy.modes, site.policy.min_survivors) == (1, {"masked"}, 4)


def test_the_roster_of_the_page_has_its_form(tmp_path: Path) -> None:
    numbers = iter(range(1, 100))
    text = re.sub(r'"…[^"]*"', lambda match: f'"{next(numbers):064x}"', toml_block("server = "))
    (tmp_path / "roster.toml").write_text(text)
    roster = Roster.read(tmp_path / "roster.toml")
    assert (sorted(roster.clients), sorted(roster.beside["helpers"])) == ([1, 2, 3, 4, 5], [101, 102, 103, 104])


@pytest.mark.parametrize(
    "refusal", [Refusal.DECLINED, Refusal.FAILED, Refusal.NO_SESSION, Refusal.NOT_AGREED, Refusal.NO_BUDGET]
)
def test_what_an_operator_sees_is_explained(refusal: Refusal) -> None:
    assert f"| `{REASONS[refusal]}` |" in FAILURES
