"""The command ``verify``: a model from its totals once more, and receipts against a roster."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from analytic.model_files import load_model
from analytic_secagg.commands.verify import VerifyOptions
from analytic_secagg.receipts import problems, told_by
from analytic_secagg.site.roster import Roster
from analytic_secagg.totals import bytes_of, differences, read_totals
from secagg import Receipt, SumResult


def run(options: VerifyOptions) -> int:
    """Compute the model again and check receipts; the exit code."""
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
