"""Other records of a site that name sums of its rows: they tell of a query log that was set back with its second place.

A receipt in ``results`` names the clients in a total, under the server's signature; a copy that another site keeps of
the same sum serves as well. A ledger names each sum with noise that the rows were charged for. The query log notes a
sum before either is written, and forgets none, so a sum that only they know is one that it lost.

They are of use where they were not set back too. Models that came back name no sum: they only tell that a query log
without any entry or session is not new.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress

from analytic_secagg.site.errors import SiteFileError
from analytic_secagg.site.results import NAME_DIGITS
from analytic_secagg.site.site_file import SiteFile
from secagg import Receipt
from secagg.dp import LedgerError
from secagg.errors import ReceiptError


def missing_sums(file: SiteFile, noted: Collection[bytes]) -> dict[bytes, str]:
    """Return the sums of a site's rows that its query log does not know, by digest, and what names them.

    Args:
        file: the site.
        noted: the digests of the sums that the query log noted.
    """
    if file.client is None:
        return {}
    found, names = dict[bytes, str](), {digest.hex()[:NAME_DIGITS] for digest in noted}
    for path in sorted(file.kept.folder.glob("*.receipt")):
        if path.stem not in names:
            with suppress(OSError, ReceiptError):  # one that does not hold is no record; health says so
                receipt = Receipt.from_bytes(path.read_bytes())
                receipt.verify(file.roster.server)
                if file.client.party in receipt.statement.survivors and receipt.statement.configuration not in noted:
                    found[receipt.statement.configuration] = f"the receipt {path}"
    with suppress(LedgerError, SiteFileError):  # one that does not read pays for no sum, so none is joined
        if (ledger := file.ledger) is not None:
            found |= {digest: f"the ledger {ledger.path}" for digest in ledger.sessions if digest not in noted}
    return found


def has_results(file: SiteFile) -> bool:
    """Return whether a run of this site ended in a model, an evaluation or totals."""
    return any(file.kept.folder.glob("*.safetensors"))
