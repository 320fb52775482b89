"""The command ``schema``: drafts of a table's schema and of how one site reads it."""

from __future__ import annotations

import errno
import os

from analytic_secagg.commands.schema import SchemaOptions
from analytic_secagg.doubts import of_telling
from analytic_secagg.errors import DataError, OutputError
from analytic_secagg.site.errors import SiteFileError
from analytic_secagg.site.reading import Reading
from analytic_secagg.site.schema_draft import draft
from analytic_secagg.site.table import TableSchema

SCHEMA, READING = "columns.toml", "reading.toml"


def run(options: SchemaOptions) -> int:
    """Draft a schema and a reading; the exit code."""
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
