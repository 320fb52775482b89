"""The command ``change``: a stored total and its model after a batch of sites joined, left or took rows out."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from analytic.model_files import load_model, model_to_bytes
from analytic_secagg.changes import Change, Changed, ChangeRefusedError, changed, with_classes
from analytic_secagg.commands.change import ChangeOptions
from analytic_secagg.console.arguments import wholes
from analytic_secagg.console.output_files import OutputFile
from analytic_secagg.errors import UsageError
from analytic_secagg.release import ReleasePolicy
from analytic_secagg.totals import read_totals, totals_to_bytes
from secagg import SumResult


def run(options: ChangeOptions) -> int:
    """Change the total as asked; the exit code."""
    saved = load_model(options.model)
    learner: Any = saved.learner
    before, classes = _only(options.totals), saved.classes
    if options.new_classes:
        classes = _with_new(options.new_classes, classes, learner.n_targets)
        learner, before = with_classes(learner, before, learner.n_targets + len(options.new_classes))
    found = changed(
        learner,
        before,
        _only(options.batch),
        Change(options.how),
        policy=ReleasePolicy(min_survivors=options.min_sites),
        reason=options.reason,
    )
    model = model_to_bytes(
        learner, found.model, classes=classes, features=saved.features, with_totals=options.with_totals
    )
    totals = totals_to_bytes([found.total])
    record = json.dumps(_record(options, learner, found, totals), indent=2) + "\n"
    _write({options.record: record.encode(), options.new_totals: totals, options.new_model: model})
    print(f"{options.how}: sites {', '.join(map(str, found.batch))}; {len(found.total.survivors)} are in the total now")
    if found.revealed:
        print(
            f"the totals before and after show the sum of sites {', '.join(map(str, found.revealed))} alone, whose "
            f"reason is: {found.reason}"
        )
    print(f"{options.new_model} and {options.new_totals}: analytic-secagg verify compares them")
    print(f"{options.record} says what was done")
    return 0


def _with_new(new: tuple[str, ...], known: tuple[str | int, ...] | None, n_known: int) -> tuple[str | int, ...] | None:
    """The names of all classes, of which new ones come last; None where classes have no names.

    Raises:
        UsageError: a name that another class has, or labels that do not follow the known ones.
    """
    if known is None:
        if new != (labels := tuple(map(str, range(n_known, n_known + len(new))))):
            raise UsageError(
                f"--new-classes must be the labels that follow the {n_known} of the model, {','.join(labels)}, since "
                f"its classes have no names; not {','.join(new)}"
            )
        return None
    named: tuple[str | int, ...] = new
    if all(isinstance(one, int) for one in known):
        named = wholes(",".join(new), at_least=-(2**63), at_most=2**63 - 1)
    if twice := [name for name in named if str(name) in map(str, known) or named.count(name) > 1]:
        raise UsageError(f"--new-classes must be classes that the model has not, each once, and {twice[0]} comes twice")
    return (*known, *named)


def _write(contents: dict[Path, bytes]) -> None:
    """Write all of these, or none where one cannot be written.

    The record comes first: after a crash it may stand alone, and says by hash which totals it is of, but no result is
    there whose reason nobody filed.
    """
    outputs = [(OutputFile(path, private=True), content) for path, content in contents.items()]
    try:
        for output, content in outputs:
            output.write(content)
    except BaseException:
        for output, _ in outputs:
            output.path.unlink(missing_ok=True)
        raise


def _record(options: ChangeOptions, learner: Any, found: Changed[Any], totals: bytes) -> dict[str, Any]:
    """Return the public record of a change: of whom both totals then show the sum, and why that was done."""
    return {
        "change": found.change.value,
        "batch": list(found.batch),
        "in_total": list(found.total.survivors),
        "min_sites": options.min_sites,
        "new_classes": list(options.new_classes),
        "reason": found.reason,
        "revealed": list(found.revealed),
        "weights_sha256": hashlib.sha256(learner.weights_bytes(found.model)).hexdigest(),
        "totals_sha256": {
            "before": _sha256(options.totals.read_bytes()),
            "batch": _sha256(options.batch.read_bytes()),
            "after": _sha256(totals),
        },
    }


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _only(path: Path) -> SumResult:
    totals = read_totals(path)
    if len(totals) != 1:
        raise ChangeRefusedError(
            f"{path} holds the totals of {len(totals)} sums, and only a learner of one sum changes over time: start "
            "again with everybody"
        )
    return totals[0]
