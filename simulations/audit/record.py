"""The report of an audit: one record, from which terminal, page and JSON are read."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from importlib import import_module
from typing import Any, Literal

from pydantic import Field

from analytic_secagg.audit_result import decision_of
from analytic_secagg.code_version import code_version
from simulations.audit.decide import DecisionRule, ExposureRecord, Result, Verdict
from simulations.audit.finished_run import RunRecord
from simulations.audit.settings import SettingsRecord
from simulations.audit.two_worlds import TwoWorlds
from simulations.report.document import (
    DatasetRecord,
    NotNegative,
    Record,
    Sha256,
    computed,
    versions,
)


class AttackRecord(Record, title="attack"):
    """An attack that was chosen."""

    name: str
    """Name on the command line."""
    title: str
    """What is attacked, in words."""
    needs: str
    """What the attacker knows beforehand."""
    unit: str
    """Whom it learns something about: a row, a site or the cohort."""
    limit: str | None
    """The number of a total or a model that is limited; null for none."""
    works: bool | None = None
    """Positive control: whether it won where nothing protects, or where a fault was planted. Null where none was made,
    since it decides nothing in this report."""


class CodeRecord(Record, title="code"):
    """The code that ran."""

    version: str
    """Version of the installed package."""
    sha256: Sha256
    """Digest of the package's Python files; analytic-secagg doctor prints that of an installation."""


class CheckRecord(Record, title="check"):
    """Verdict of a server's disclosure checks on a total, by the default release policy."""

    exposure: str
    """Which total."""
    refused: bool
    """Whether such a server would not release it."""
    findings: tuple[str, ...]
    """What the checks say, in words."""


class Audit(Record, title="Report of analytic-secagg audit", frozen=False):
    """Readers must ignore names that they do not know."""

    kind: Literal["analytic-secagg/audit"] = Field(default="analytic-secagg/audit", serialization_alias="schema")
    """Says what kind of document this is."""
    schema_version: Literal[5] = 5
    """Raised when a name changes its meaning or goes away; new names do not raise it."""
    date: str = Field(default_factory=lambda: datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"))
    """When it was made."""
    versions: dict[str, str] = Field(default_factory=versions)
    """Versions of Python and of the packages that decide the numbers."""
    code: CodeRecord = Field(default_factory=lambda: CodeRecord.model_validate(code_version()))
    """The installation that made the report."""
    plan_sha256: Sha256 | None = None
    """Digest of the file of the audit plan that it was made for; null for none."""
    dataset: DatasetRecord
    """The rows."""
    notes: tuple[str, ...] = ()
    """What was chosen or guessed of the rows: columns, target, codes for missing values, what was left out."""
    sites: str | None = None
    """The column that names the sites whose rows these are; null where rows were dealt to clients at random."""
    settings: SettingsRecord
    """What was audited."""
    run: RunRecord | None = None
    """The finished run whose totals and model were attacked; null where totals and models were rehearsed."""
    rule: DecisionRule
    """How results were judged."""
    attacks: tuple[AttackRecord, ...] = Field(min_length=1)
    """The attacks that were chosen."""
    exposures: list[ExposureRecord] = Field(default=[])
    """What was seen."""
    results: list[Result] = Field(default=[])
    """What each attack learnt from each exposure that it can read."""
    checks: list[CheckRecord] = Field(default=[])
    """What a server's disclosure checks say of each total."""
    two_worlds: list[TwoWorlds] = Field(default=[])
    """What the best attack comes to, in many small runs with and without one person."""
    failures: list[str] = Field(default=[])
    """Parts of the audit that failed, with the reason: a sum that came to no end, or code that raised an error."""
    limitations: list[str] = Field(default=[], min_length=1)
    """What this report says nothing about."""
    seconds: NotNegative = 0.0
    """Time of the audit."""

    @computed
    def decision(self) -> Verdict:
        """What everything comes to: passed only if nothing failed and nothing is undecided."""
        pairs = ((one.rule, one.outcome) for one in self.results)
        worlds = (one.outcome for one in self.two_worlds)
        return Verdict(decision_of(pairs, worlds, is_whole=not self.failures))

    def result(self, attack: str, exposure: str) -> Result | None:
        """Return what an attack learnt from an exposure; None where it cannot read such."""
        found = (one for one in self.results if (one.attack, one.exposure) == (attack, exposure))
        return next(found, None)

    def to_frame(self) -> Any:
        """Return ``results`` as a data frame of pandas, a row for each attack on each exposure.

        Raises:
            ImportError: pandas is not installed.
        """
        return import_module("pandas").DataFrame([one.to_document() for one in self.results])

    def to_json(self) -> str:
        """Return the report as JSON, a line for each of its parts."""
        document = self.to_document()
        lines = []
        for name, value in document.items():
            if isinstance(value, list) and value:
                text = "[\n" + ",\n".join(_line(one) for one in value) + "\n]"
            else:
                text = _line(value)
            lines.append(f"{json.dumps(name)}: {text}")
        return "{\n" + ",\n".join(lines) + "\n}\n"


def _line(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)
