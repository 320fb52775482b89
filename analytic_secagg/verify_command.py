"""The command ``verify``: a model from its totals once more, and receipts against a roster."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analytic.model_files import load_model
from analytic_secagg.console.arguments import file
from analytic_secagg.console.declaration import Command, option
from analytic_secagg.errors import UsageError
from analytic_secagg.receipts import problems, told_by
from analytic_secagg.site.roster import Roster
from analytic_secagg.totals import bytes_of, differences, read_totals
from secagg import Receipt, SumResult


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


def _verify(options: VerifyOptions) -> int:
    """Check receipts; compute the model once more and compare every bit."""
    totals: tuple[SumResult, ...] = () if options.totals is None else read_totals(options.totals)
    found = 0 if options.roster is None else _check_receipts(options, totals, Roster.read(options.roster))
    return found if options.model is None else max(found, _compute_again(options.model, totals))


def _check_receipts(options: VerifyOptions, totals: Sequence[SumResult], roster: Roster) -> int:
    kept = [Receipt.from_bytes(bytes_of(path)) for path in options.receipts]
    wrong = list(problems(kept, totals, roster))
    for line in wrong:
        print(line)
    if wrong:
        return 1
    for receipt in (*(Receipt.from_bytes(one.receipt) for one in totals if one.receipt), *kept):
        print(f"receipt of {told_by(receipt, roster)}")
    return 0


def _compute_again(model: Path, totals: Sequence[SumResult]) -> int:
    saved = load_model(model)
    weights = hashlib.sha256(saved.learner.weights_bytes(saved.model)).hexdigest()
    for number, one in enumerate(totals, start=1):
        print(f"sum {number}: {len(one.total)} numbers of {len(one.survivors)} clients")
    learner: Any = saved.learner
    if uncertified := learner.take_apart(saved.model).uncertified:
        print(f"not certified, the bits are those of the machine that solved: {', '.join(uncertified)}")
    found = differences(saved, totals)
    for line in found:
        print(line)
    if found:
        print(f"NOT EQUAL: the totals give another model than the one with weights {weights}")
        return 1
    print(f"equal, bit for bit: the totals give the model with weights {weights}")
    return 0


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
    run=_verify,
    finding="the totals give another model, or a receipt does not vouch or convicts",
)
