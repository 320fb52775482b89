"""The lists of faults, and the command that runs them: ``python tests/reliability/faults.py --out results.jsonl``.

The full list is at least 200 faults over all cases (modes, with and without noise) and roles, spread over the steps of
a run; the short one is what every change runs. Each fault writes one line, and is not run again where it is there.
``--page FILE`` puts the table of such lines into a page, ``docs/reference/reliability.md``, between its two marks.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from reliability.harness import CASES, Fault, Outcome, theatre  # noqa: E402

from analytic_secagg.modes import MODES  # noqa: E402

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - its folders are their owner's alone

FULL: dict[str, dict[str, tuple[float, ...]]] = {
    "server": {
        "kill": (0.05, 0.2, 0.35, 0.5, 0.65, 0.8, 0.95),
        "stop": (0.5,),
        "kill and a site stays away": (0.3, 0.6),
    },
    "site": {
        "kill a site": (0.1, 0.4, 0.7, 0.95),
        "kill a site for good": (0.4, 0.8),
        "stop a site": (0.5,),
        "stop a site for good": (0.5,),
        "kill all but two sites": (0.4, 0.8),
        "kill everybody": (0.5,),
    },
    "helper": {
        "kill a helper": (0.3, 0.7),
        "kill a helper for good": (0.5,),
        "stop a helper": (0.5,),
        "kill all but one helper": (0.4, 0.8),
    },
    "network": {
        "cut an answer": (0.3, 0.7),
        "cut a request": (0.5,),
        "swallow for a second": (0.4,),
        "swallow for good": (0.6,),
        "slow": (0.2,),
    },
    "disk": {
        "full at the server": (0.1, 0.6),
        "full at a site": (0.1, 0.6),
        "read-only at a site": (0.3,),
    },
}
"""Places of each kind of fault, by role."""

SHORT = {
    "committee, noise": [
        Fault(role="server", what="kill", place=0.85),
        Fault(role="helper", what="kill a helper", place=0.6),
        Fault(role="disk", what="full at the server", place=0.3),
    ],
    "masked, noise": [
        Fault(role="server", what="kill", place=0.4),
        Fault(role="site", what="kill a site", place=0.6),
        Fault(role="site", what="kill all but two sites", place=0.75),
        Fault(role="network", what="cut an answer", place=0.3),
    ],
}
"""All over one deployment, whose sites are helpers, too."""


def full_list(case: str) -> Iterator[Fault]:
    """The faults of the full list for a case."""
    has_helper = MODES[CASES[case].mode].helper is not None
    for role, kinds in FULL.items():
        if role != "helper" or has_helper:
            for what, places in kinds.items():
                for place in places:
                    yield Fault(role=role, what=what, place=place)


def run(faults: Mapping[str, Sequence[Fault]], *, are_helpers_apart: bool = True) -> Iterator[dict[str, Any]]:
    """Run faults of cases, all over one deployment, which is that of the first; yield what came of each."""
    git = ["git", "rev-parse", "--short=12", "HEAD"]
    commit = subprocess.run(git, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
    place, first = SHARED_MEMORY if SHARED_MEMORY.exists() else None, CASES[next(iter(faults))]
    with (
        tempfile.TemporaryDirectory(dir=place) as folder,
        theatre(Path(folder), first, are_helpers_apart=are_helpers_apart) as of,
    ):
        for case, fault in ((case, fault) for case, some in faults.items() for fault in some):
            if not of.steps or of.case is not CASES[case]:
                of.record(CASES[case])
            if fault.role == "disk" and not of.has_disks:
                continue
            came = of.suffer(fault)
            yield {
                "commit": commit,
                "case": case,
                "role": fault.role,
                "what": fault.what,
                "place": fault.place,
                "step": came.step,
                "outcome": came.outcome.name,
                "restarts": came.n_restarts,
                "seconds": round(came.seconds, 1),
                "said": came.said,
            }
            if came.outcome is Outcome.HANG:
                return  # whatever hangs is left behind with its deployment


def page(lines: list[Mapping[str, Any]]) -> str:
    """Outcomes by case, and by role and kind of fault, as two tables of Markdown; faults that came too late apart."""
    hit = list({(line["case"], line["what"], line["place"]): line for line in lines if line["step"]}.values())
    commits = ", ".join(f"`{commit}`" for commit in dict.fromkeys(line["commit"] for line in hit))
    seconds = sorted(line["seconds"] for line in hit)
    said = (
        f"{len(hit)} faults until {datetime.now(UTC):%d %B %Y}, at {commits}; faults that came after their run had "
        f"ended are not counted. From the order of a run to its end, restarts included: median "
        f"{seconds[len(seconds) // 2]:.0f} s, longest {seconds[-1]:.0f} s, on two cores with much other load."
    )
    by_case = _table("case", [(line["case"], line["outcome"]) for line in hit])
    by_kind = _table("fault", [(f"{line['role']}: {line['what']}", line["outcome"]) for line in hit])
    return f"{said}\n\n{by_case}\n\n{by_kind}\n"


def _table(first: str, found: list[tuple[str, str]]) -> str:
    counts = Counter(found)
    head = [first, "faults", *(outcome.value for outcome in Outcome)]
    rows = [head, ["---", *["---:"] * (len(head) - 1)]]
    for name in dict.fromkeys(name for name, _ in found):
        of = [counts[name, outcome.name] for outcome in Outcome]
        rows.append([name, str(sum(of)), *map(str, of)])
    together = [sum(counts[name, outcome.name] for name in {name for name, _ in found}) for outcome in Outcome]
    rows.append(["**all**", *(f"**{count}**" for count in (sum(together), *together))])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


BEGIN, END = "<!-- faults: begin -->\n", "<!-- faults: end -->"


def main() -> None:
    """Run the lists, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="a line of JSON for each fault is appended here")
    parser.add_argument("--case", action="append", choices=CASES, help="these cases alone; all if left out")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="every N-th fault of the full list alone")
    parser.add_argument("--short", action="store_true", help="the short list")
    parser.add_argument("--page", type=Path, help="write the table of what is in --out into this page, and run nothing")
    options = parser.parse_args()
    if options.page is not None:
        lines = [json.loads(line) for line in options.out.read_text().splitlines()]
        text = options.page.read_text(encoding="utf-8")
        before, after = text.split(BEGIN)[0], text.split(END)[1]
        options.page.write_text(f"{before}{BEGIN}{page(lines)}{END}{after}", encoding="utf-8")
        return
    done = [json.loads(line) for line in options.out.read_text().splitlines()] if options.out.exists() else []
    for case in options.case or (SHORT if options.short else CASES):
        faults = SHORT[case] if options.short else list(full_list(case))[:: options.every]
        over = {(line["what"], line["place"]) for line in done if line["case"] == case}
        left = [fault for fault in faults if (fault.what, fault.place) not in over]
        for line in run({case: left}) if left else ():
            with options.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
            print(*(line[name] for name in ("case", "what", "place", "step", "outcome", "seconds", "said")), flush=True)


if __name__ == "__main__":
    main()
