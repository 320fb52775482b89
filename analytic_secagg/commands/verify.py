"""Declaration of the command ``verify``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from analytic_secagg.console.arguments import file
from analytic_secagg.console.declaration import Command, option
from analytic_secagg.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyOptions:
    """Options of the command ``verify``."""

    model: Path | None = option("a model's file", file, default=None, positional=True, metavar="MODEL")
    totals: Path | None = option(
        "the file of the totals it was made of", file, default=None, positional=True, metavar="TOTALS"
    )
    roster: Path | None = option("the operator's roster, to check receipts", file, default=None, metavar="FILE")
    receipts: tuple[Path, ...] = option(
        "a receipt that a site kept; may be given several times",
        file,
        default=(),
        flag="--receipt",
        repeated=True,
        metavar="FILE",
        shown="",
    )

    def __post_init__(self) -> None:
        if (self.model is None) != (self.totals is None) or (self.model is None and not self.receipts):
            raise UsageError("needs a model and the totals it was made of, or receipts (--receipt), or all of these")
        if self.receipts and self.roster is None:
            raise UsageError("a receipt is held against the keys of the operator's roster; name it with --roster")


COMMAND = Command(
    name="verify",
    summary="compute a model once more from the totals of its run, compare every bit, and check receipts",
    examples="""example:
  analytic-secagg verify model.safetensors totals.safetensors
      both are in the folder of a run; whoever has a run's totals can do this, on any machine
  analytic-secagg verify --roster roster.toml --receipt results/0123456789abcdef.receipt
      what a site keeps of a sum; a second receipt of the same sum may convict the server
""",
    options=VerifyOptions,
    run="analytic_secagg.verify_command:run",
    finding="the totals give another model, or a receipt does not vouch or convicts",
)
