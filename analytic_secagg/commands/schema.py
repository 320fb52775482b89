"""Declaration of the command ``schema``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from analytic_secagg.console.arguments import file
from analytic_secagg.console.declaration import Command, option


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaOptions:
    """Options of the command ``schema``."""

    action: str = option("draft proposes both files", choices=("draft",), positional=True, metavar="draft")
    table: Path = option("a site's table", file, positional=True, metavar="FILE")
    target: str = option("the target column", str, metavar="COLUMN")
    into: Path = option(
        "a folder for the two files, made where it is not there; no file is replaced",
        file,
        default=Path(),
        metavar="FOLDER",
    )


COMMAND = Command(
    name="schema",
    summary="draft a table's schema, which all sites share, and the reading of this file, which stays at the site",
    examples="""example:
  analytic-secagg schema draft heart.csv --target Diagnose
      a person reads both files; notes that it prints may name values, and are for this site alone
""",
    options=SchemaOptions,
    run="analytic_secagg.schema_command:run",
)
