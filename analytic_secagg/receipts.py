"""Receipts held against a roster, offline: who signed them, of which totals, and whether they convict a server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

from analytic_secagg.modes import helper_roles
from analytic_secagg.site.roster import Roster
from secagg import PartyId, Receipt, SumResult, check_evidence
from secagg.errors import ReceiptError


def told_by(receipt: Receipt, roster: Roster) -> str:
    """Return in words what a receipt proves.

    Raises:
        ReceiptError: it is not signed by the roster's server, or countersignatures do not verify.
    """
    signers, who, corrupt = _countersigners(receipt, roster)
    inclusion = receipt.inclusion
    receipt.verify(roster.server, signers or None, corrupt=corrupt, party=inclusion.party if inclusion else 0)
    said = f"sum {_name(receipt)}, over clients {', '.join(map(str, receipt.statement.survivors))}: "
    said += "signed by the server alone, and a second total of it would be evidence against the server"
    if signers:
        said = said.partition("signed by")[0]
        said += (
            f"signed by the server and countersigned by {len(receipt.countersignatures)} of the {len(signers)} {who}"
        )
    if inclusion is not None:
        upload = inclusion.upload.hex()[:16]
        said += f"; upload {upload} of client {inclusion.party} is among those signed (no proof that it was added)"
    return said


def problems(receipts: Sequence[Receipt], totals: Sequence[SumResult], roster: Roster) -> Iterator[str]:
    """Yield what is wrong with receipts, and what they prove against the server.

    Args:
        receipts: of whatever sums.
        totals: of a run; each one's own receipt, if it has one, must be for it.
        roster: whose keys they are held against.
    """
    own = [(one, Receipt.from_bytes(one.receipt)) for one in totals if one.receipt]
    for result, receipt in own:
        try:
            told_by(receipt, roster)
            receipt.verify_total(result.total)
            if receipt.statement.survivors != result.survivors:
                raise ReceiptError("this receipt names other survivors than the file of totals")
        except ReceiptError as error:
            yield f"sum {_name(receipt)}: {error}"
    for receipt in receipts:
        try:
            told_by(receipt, roster)
        except ReceiptError as error:
            yield f"sum {_name(receipt)}: {error}"
    for one, other in combinations([*receipts, *(receipt for _, receipt in own)], 2):
        try:
            check_evidence(one, other, roster.server)
        except ReceiptError:
            continue
        yield f"EVIDENCE AGAINST THE SERVER: it signed two different totals of sum {_name(one)}; keep both receipts"


def _name(receipt: Receipt) -> str:
    return receipt.statement.configuration.hex()[:16]


def _countersigners(receipt: Receipt, roster: Roster) -> tuple[Mapping[PartyId, bytes], str, int | None]:
    """Everybody who may have countersigned it, by Ed25519 key, what they are, and how many of them may collude."""
    if not receipt.countersignatures:
        return {}, "", None
    words = {role.table: f"{role.name}s" for role in helper_roles()}
    for table, listed in roster.beside.items():
        if receipt.countersignatures.keys() <= listed.keys():
            corrupt = len(listed) - 1 if roster.corrupt_helpers is None else roster.corrupt_helpers
            return listed, words.get(table, table), corrupt
    return roster.clients, "clients", None
