"""Declaration of the command ``change``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from analytic_secagg.console.arguments import count, file, items
from analytic_secagg.console.declaration import Command, option
from analytic_secagg.console.output_files import refuse_same_file
from analytic_secagg.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeOptions:
    """Options of the command ``change``."""

    model: Path = option("the model's file", file, positional=True, metavar="MODEL")
    totals: Path = option("the file of the totals it was made of", file, positional=True, metavar="TOTALS")
    batch: Path = option("the totals of the batch, from a run of its own", file, positional=True, metavar="BATCH")
    how: str = option("what the batch does", choices=("join", "leave", "remove rows"), default="join")
    new_classes: tuple[str, ...] = option(
        "classes that come with the batch, whose own run had them after the others: their names, or, for a model whose "
        "classes have none, their labels",
        lambda text: tuple(items(text)),
        default=(),
        metavar="NAME,...",
        shown="none",
    )
    min_sites: int = option("fewest sites of a batch, and of those that stay", count, default=5, metavar="N")
    reason: str = option("why a smaller batch is allowed, a sentence for the record", str, default="", shown="none")
    new_model: Path = option("where the model goes", file, default=Path("changed-model.safetensors"), metavar="FILE")
    new_totals: Path = option("where its totals go", file, default=Path("changed-totals.safetensors"), metavar="FILE")

    with_totals: bool = option("keep FedHiP's total in the model's file, for a site that personalises", default=False)
    record: Path = option(
        "where the record of the change goes", file, default=Path("changed-record.json"), metavar="FILE"
    )

    def __post_init__(self) -> None:
        read = {"MODEL": self.model, "TOTALS": self.totals, "BATCH": self.batch}
        written = {"--new-model": self.new_model, "--new-totals": self.new_totals, "--record": self.record}
        refuse_same_file({**read, **written})
        for flag, path in written.items():
            if path.exists():
                raise UsageError(f"{path} is there, of an earlier change, and is never replaced; name another ({flag})")


COMMAND = Command(
    name="change",
    summary="let a batch of sites join or leave a stored total, or take rows out of it, without starting again",
    examples="""examples:
  analytic-secagg change model.safetensors totals.safetensors newcomers/totals.safetensors
      the newcomers made a run of their own, with the settings of the first one
  analytic-secagg change model.safetensors totals.safetensors withdrawn/totals.safetensors --how 'remove rows'
      the model has the bits of one that never had these rows
  analytic-secagg change model.safetensors totals.safetensors batch/totals.safetensors --new-classes deer,frog
      the batch's rows are of two classes more, which its run listed after the others
""",
    options=ChangeOptions,
    run="analytic_secagg.change_command:run",
)
