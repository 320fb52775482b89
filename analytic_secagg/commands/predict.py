"""Declaration of the command ``predict``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from analytic_secagg.console.arguments import file
from analytic_secagg.console.declaration import Command, option
from analytic_secagg.console.output_files import refuse_same_file


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictOptions:
    """Options of the command ``predict``."""

    model: Path = option("a model, of a run or saved by a program", file, positional=True, metavar="MODEL")
    table: Path = option("a table of rows, which needs no target", file, positional=True, metavar="TABLE")
    columns: Path | None = option(
        "the schema that all sites share; without it the table's columns of numbers have the names of the model's",
        file,
        default=None,
        metavar="FILE",
    )
    reading: Path | None = option("how this file writes what the schema means", file, default=None, metavar="FILE")
    output: Path | None = option("a CSV file for the answers", file, default=None, metavar="FILE", shown="the screen")

    def __post_init__(self) -> None:
        read = {"MODEL": self.model, "TABLE": self.table, "--columns": self.columns, "--reading": self.reading}
        refuse_same_file({**read, "--output": self.output})


COMMAND = Command(
    name="predict",
    summary="apply a model to the rows of a table, on the host that has them",
    examples="""examples:
  analytic-secagg predict model.safetensors new.csv --columns columns.toml --reading reading.toml
      a line for each patient: the predicted class and the scores of all
  analytic-secagg predict model.safetensors new.csv --output answers.csv
      a model of numbers alone, whose file names its columns
""",
    options=PredictOptions,
    run="analytic_secagg.predict_command:run",
)
