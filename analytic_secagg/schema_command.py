"""The command ``schema``: drafts of a table's schema and of how one site reads it."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from pathlib import Path

from analytic_secagg.console.arguments import file
from analytic_secagg.console.declaration import Command, option
from analytic_secagg.doubts import of_telling
from analytic_secagg.errors import DataError, OutputError
from analytic_secagg.site.errors import SiteFileError
from analytic_secagg.site.reading import Reading
from analytic_secagg.site.schema_draft import draft
from analytic_secagg.site.table import TableSchema

SCHEMA, READING = "columns.toml", "reading.toml"


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


def _schema(options: SchemaOptions) -> int:
    found = draft(options.table, options.target)
    schema, reading = options.into / SCHEMA, options.into / READING
    for path in (schema, reading):
        if path.exists():
            raise OutputError(f"cannot write {path}: {os.strerror(errno.EEXIST)}; name another folder with --into")
    for path, text in ((schema, found.schema), (reading, found.reading)):
        try:
            options.into.mkdir(exist_ok=True)
            with path.open("x", encoding="utf-8") as made:
                made.write(text)
        except OSError as error:
            raise OutputError(f"cannot write {path}: {error.strerror}; name another folder with --into") from error
    print(f"{schema}: the schema, to be read, corrected and agreed on with all sites")
    print(f"{reading}: how this file is written, for this site's own file alone")
    for note in found.notes:
        print(f"  {note}")
    try:
        columns = TableSchema.read(schema)
        rows = columns.rows(options.table, Reading.read(reading))
        for doubt in of_telling(columns.features, rows.features, rows.targets):
            print(f"  {doubt}")
        print(f"read so: {len(rows)} rows of {rows.features.shape[1]} features")
    except (DataError, SiteFileError) as error:
        print(f"to be mended before it can be read: {error}")
    return 0


COMMAND = Command(
    name="schema",
    summary="draft a table's schema, which all sites share, and the reading of this file, which stays at the site",
    examples="""example:
  analytic-secagg schema draft heart.csv --target Diagnose
      a person reads both files; notes that it prints may name values, and are for this site alone
""",
    options=SchemaOptions,
    run=_schema,
)
