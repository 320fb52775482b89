"""The run of a dossier: its summary compared with its own settings, invitation, model, totals and receipts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from analytic.array_file import line_of_json
from analytic.errors import AnalyticError
from analytic.model_files import SavedModel, model_from_bytes
from analytic_secagg.audit_plan import BoundPlan, PlanError
from analytic_secagg.configurations import configuration_digest
from analytic_secagg.errors import FederationError
from analytic_secagg.federation import Federation
from analytic_secagg.receipts import problems as receipt_problems
from analytic_secagg.release import QUESTIONS
from analytic_secagg.run_account import account_of_run, account_of_sum
from analytic_secagg.server.run_settings import RunSettings
from analytic_secagg.site.proposal import TrainingProposal
from analytic_secagg.site.roster import Roster
from analytic_secagg.site.session import Session
from analytic_secagg.totals import differences, totals_from_bytes
from secagg import Guarantee, PartyId, Receipt, SumResult
from secagg.errors import SecureSumError

RUN = "run/"
"""Its folder in the dossier."""

SUMMARY, MODEL, TOTALS, INVITATION = "summary.json", "model.safetensors", "totals.safetensors", "invitation"
NEEDED = (MODEL, SUMMARY, INVITATION)
RUN_FILES = (*NEEDED, TOTALS)
"""The files taken from a run's folder. Log and evaluation are the server's word, and their counts are a total."""

OF_RUN = {"started", "seconds", "code", "plan", "survivors", "sums", "weights_sha256", "certified", "uncertified"}
"""Names in a summary beside those of ``account_of_run``."""

OF_SUM = {
    "session", "context", "configuration", "uploads", "survivors", "segments", "concerns", "disputes", "complaints"
}  # fmt: skip
"""Names in the account of a sum, those of ``account_of_sum``."""

ERRORS = (AnalyticError, FederationError, SecureSumError, ValueError, KeyError, TypeError, AttributeError, IndexError)

Found = Iterator[tuple[str, str]]
"""(file, what is wrong or missing)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FiledRun:
    """The files of a run in a dossier, and what follows from them.

    Args:
        files: by name.
        roster: the dossier's.
        kept: the receipts beside it, of whatever sums.
    """

    files: Mapping[str, bytes] = field(repr=False)
    roster: Roster
    kept: Sequence[Receipt] = ()

    @property
    def said(self) -> dict[str, Any]:
        """Its summary.

        Raises:
            ValueError: it is no JSON object.
        """
        summary = json.loads(self.files[SUMMARY])
        if not isinstance(summary, dict):
            raise ValueError("it is no JSON object")
        return summary

    def contradictions(self) -> Found:
        """Yield what its files state that does not follow from them."""
        parts: dict[str, Callable[[], Found]] = {
            SUMMARY: self._of_settings, MODEL: self._of_model, INVITATION: self._of_invitation, TOTALS: self._of_totals
        }  # fmt: skip
        for name, part in parts.items():
            if name == TOTALS and name not in self.files:
                continue
            try:
                yield from ((f"{RUN}{file}", line) for file, line in part())
            except ERRORS as error:
                yield f"{RUN}{name}", f"it cannot be verified: {type(error).__name__}: {error}"
                if name == SUMMARY:
                    return

    def gaps(self) -> Found:
        """Yield which files of a run are not here, and what in the others nothing recomputes."""
        said = self.said
        if not self.recomputed:
            yield (
                f"{RUN}{TOTALS}",
                "left out: nothing computes the model, disclosure checks and survivors again, nor `segments` and "
                "`context` of sums after the first",
            )
        yield (
            f"{RUN}{SUMMARY}",
            "the server's word for `started`, `seconds`, `code`, `disputes` and `complaints`, how long anybody was "
            "waited for, and whether there was an evaluation",
        )
        if bytes.fromhex(said["configuration"]) not in self.roster.configurations:
            yield f"{RUN}{SUMMARY}", "its configuration is not in the roster: whether owners agreed to it"
        if not self.countersigners():
            yield f"{RUN}{INVITATION}", "the server's word: no other party countersigned a receipt of this sum"
        if (sums := len(said["sums"])) > 1:
            yield f"{RUN}{SUMMARY}", f"mode and noise are verified for sum 1 of {sums}: one invitation is kept"

    def bound_by(self, plan: bytes) -> str:
        """Return in words who shows that the run began after a plan was fixed.

        Raises:
            PlanError: the run was bound to another plan, or its first sum is not the one that was bound.
        """
        if self.said.get("plan") is None:
            return "nobody: the run was bound to no plan"
        try:
            bound = BoundPlan(content=plan, nonce=bytes.fromhex(self.said["plan"]["nonce"]))
            session, other = TrainingProposal.from_bytes(self.files[INVITATION]).session, [*self._of_invitation()]
        except ERRORS as error:
            raise PlanError(f"what the run was bound to does not read ({RUN}{INVITATION}): {error}") from error
        if bound.session != session or bound.public != self.said["plan"]:
            raise PlanError("the run was bound to another plan, or its first session is another")
        if other:
            raise PlanError(f"the first sum of the run is not the one that its invitation invites to: {other[0][1]}")
        if parties := self.countersigners():
            return f"{len(parties)} parties beside the server: they countersigned a sum whose session commits to it"
        return "the server's word: its first session commits to the plan, and no other party signed a receipt of it"

    def countersigners(self) -> set[PartyId]:
        """Return who, beside the server, signed a receipt of the sum that the invitation invites to."""
        configuration = self._session().protocol.digest
        receipts = [one for one in (*self.kept, *self._own()[:1]) if one is not None]
        of_it = [one for one in receipts if one.statement.configuration == configuration]
        return {party for one in of_it for party in one.countersignatures}

    def is_of_it(self, receipt: Receipt) -> bool:
        """Whether a receipt is of a sum that the summary names."""
        return any(one["configuration"] == receipt.statement.configuration.hex() for one in self.said["sums"])

    @property
    def guarantee(self) -> Guarantee:
        """Guarantee of the first sum, by the invitation and the roster."""
        return self._session().protocol.guarantee

    @property
    def recomputed(self) -> bool:
        """True if the totals are here, from which the model and the disclosure checks are computed again."""
        return TOTALS in self.files

    @property
    def n_rows(self) -> int | None:
        """The number of rows that the first total counts; None without totals or a count, and under noise."""
        if not self.recomputed or self.said["privacy"] is not None:
            return None
        start = 0
        for name, size, _ in self.said["sums"][0]["segments"]:
            if (name, size) == ("count", 1):
                return int(self._results()[0].total[start])
            start += size
        return None

    @property
    def findings(self) -> list[tuple[int, str, str]]:
        """Findings of disclosure checks: (sum, the question, the finding)."""
        asked = {gate.value: question for gate, question in QUESTIONS.items()}
        return [
            (number, asked.get(found["gate"], found["gate"]), found["message"])
            for number, one in enumerate(self.said["sums"], start=1)
            for found in one["concerns"]
        ]

    def _settings(self) -> RunSettings:
        return RunSettings.of({name.replace("_", "-"): value for name, value in self.said["settings"].items()})

    def _federation(self) -> Federation[Any]:
        return self._settings().federation(self.roster)

    def _saved(self) -> SavedModel:
        return model_from_bytes(self.files[MODEL], source=f"{RUN}{MODEL}")

    def _results(self) -> tuple[SumResult, ...]:
        return totals_from_bytes(self.files[TOTALS], source=f"{RUN}{TOTALS}") if TOTALS in self.files else ()

    def _own(self) -> list[Receipt | None]:
        """The totals' own receipts, None for a sum without one."""
        return [Receipt.from_bytes(one.receipt) if one.receipt else None for one in self._results()]

    def _session(self) -> Session:
        """The first sum, as the parties agreed to it."""
        return Session.of(TrainingProposal.from_bytes(self.files[INVITATION]), self.roster)

    def _of_settings(self) -> Found:
        said, follows = self.said, account_of_run(self._settings(), self.roster, self._federation())
        yield from _unlike(said, follows, "its settings")
        yield from _unlike(said, {"survivors": [one["survivors"] for one in said["sums"]]}, "its sums")
        yield from ((SUMMARY, f"no summary states {name!r}") for name in sorted(said.keys() - follows.keys() - OF_RUN))
        for number, one in enumerate(said["sums"], start=1):
            more = sorted(one.keys() - OF_SUM)
            yield from ((SUMMARY, f"of sum {number} no summary states {name!r}") for name in more)
            for receipt in (kept for kept in self.kept if kept.statement.configuration.hex() == one["configuration"]):
                statement = receipt.statement
                signed = {"uploads": statement.uploads.hex(), "survivors": statement.survivors}
                yield from _unlike(one, signed, "a receipt", f"of sum {number} ")

    def _of_model(self) -> Found:
        saved, federation = self._saved(), self._federation()
        uncertified = list(saved.learner.take_apart(saved.model).uncertified)
        weights = hashlib.sha256(saved.learner.weights_bytes(saved.model)).hexdigest()
        found = {"weights_sha256": weights, "certified": not uncertified, "uncertified": uncertified}
        yield from _unlike(self.said, found, "the model")
        if configuration_digest(saved.learner) != configuration_digest(federation.learner):
            yield MODEL, "its learner has another configuration than the settings in summary.json give"

    def _of_invitation(self) -> Found:
        proposal, first = TrainingProposal.from_bytes(self.files[INVITATION]), self.said["sums"][0]
        stated = self._settings().proposal(self.roster, proposal.model, session=bytes.fromhex(first["session"]))
        yield from _unlike(json.loads(stated.terms), json.loads(proposal.terms), "the invitation")
        session, step = self._session(), self._federation().next_sum
        if step is None or session.step.context != step.context:
            yield INVITATION, "its learner has another configuration than the settings in summary.json give"
        else:
            segments = [[one.name, one.size, one.bound] for one in step.layout.segments]
            agreed = {"context": step.context.hex(), "segments": segments}
            yield from _unlike(first, agreed, "the invitation", "of sum 1 ")
        receipts = [one.statement.configuration.hex() for one in self._own()[:1] if one is not None]
        if not {first["configuration"], *receipts} <= {None, session.protocol.digest.hex()}:
            yield INVITATION, "summary.json or the first total's receipt is of another sum than it invites to"

    def _of_totals(self) -> Found:
        said, results, federation = self.said, self._results(), self._federation()
        wrong = [f"the model does not follow from it: {one}" for one in differences(self._saved(), results, federation)]
        wrong += [line for line in receipt_problems(self.kept, results, self.roster) if "EVIDENCE" in line]
        wrong += receipt_problems((), results, self.roster)
        yield from ((TOTALS, line) for line in wrong)
        yield from _unlike(said, {"survivors": [one.survivors for one in results]}, "totals")
        if len(said["sums"]) != len(results):
            yield SUMMARY, f"it states {len(said['sums'])} sums, and {TOTALS} holds {len(results)}"
        for number, (record, result, stated) in enumerate(zip(federation.sums, results, said["sums"], strict=False), 1):
            found = account_of_sum(record, bytes.fromhex(stated["session"]), result)
            known = {name: value for name, value in found.items() if name not in ("disputes", "complaints")}
            yield from _unlike(stated, known, "totals", f"of sum {number} ")


def _unlike(said: Mapping[str, Any], found: Mapping[str, Any], source: str, where: str = "") -> Found:
    """Yield each value of a summary that is another one than follows from another file."""
    for name, value in json.loads(json.dumps(found)).items():
        if name not in said or said[name] != value:
            stated, given = (line_of_json({name: one})[:200] for one in (said.get(name), value))
            yield SUMMARY, f"{where}it states {stated}, and from {source} follows {given}"
