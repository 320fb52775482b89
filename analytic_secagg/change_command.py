"""The command ``change``: a stored total and its model after a batch of sites joined, left or took rows out."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analytic.model_files import load_model, model_to_bytes
from analytic_secagg.changes import Change, Changed, ChangeRefusedError, changed, with_classes
from analytic_secagg.console.arguments import count, file, items, wholes
from analytic_secagg.console.declaration import Command, option
from analytic_secagg.console.output_files import OutputFile, refuse_same_file
from analytic_secagg.errors import UsageError
from analytic_secagg.release import ReleasePolicy
from analytic_secagg.totals import read_totals, totals_to_bytes
from secagg import SumResult


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeOptions:
    """Options of the command ``change``."""

    model: Path = option("the model's file", file, positional=True, metavar="MODEL")
    totals: Path = option("the file of the totals it was made of", file, positional=True, metavar="TOTALS")
    batch: Path = option("the totals of the batch, from a run of its own", file, positional=True, metavar="BATCH")
    how: str = option("what the batch does", choices=tuple(Change), default=Change.JOIN.value)
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


def _run(options: ChangeOptions) -> int:
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
            output.fill(lambda out, content=content: out.write(content))  # type: ignore[misc]
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
    run=_run,
)
