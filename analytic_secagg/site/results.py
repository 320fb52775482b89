"""Results of a run that a server gives the sites, and what a site keeps of them: receipts, the model, and totals."""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass, field
from pathlib import Path

from analytic.errors import AnalyticError
from analytic.model_files import EVALUATIONS, model_from_bytes, names_in
from analytic_secagg.console.output_files import OutputFile
from analytic_secagg.site.errors import SiteFileError, WireError
from secagg import IdentityKey, Receipt
from secagg.primitives.identity import is_signed

LOG = logging.getLogger("analytic_secagg.site")
NAME_DIGITS = 16
_LABEL = "results of a run"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResults:
    """Results of a run, signed by its server: two models of one run are evidence against it.

    Args:
        model: the model's file, with the total in it (FedHiP's) for whom the roster names. Or an evaluation's.
        totals: the file of the run's totals, for whom the roster names; else empty.
        signature: the server's, over the run's last session and both.
    """

    model: bytes = field(repr=False)
    totals: bytes = field(default=b"", repr=False)
    signature: bytes

    @classmethod
    def signed(cls, identity: IdentityKey, session: bytes, *, model: bytes, totals: bytes = b"") -> RunResults:
        """Return the results of a session's run, signed."""
        return cls(model=model, totals=totals, signature=identity.sign(_LABEL, *_said(session, model, totals)))

    @property
    def learner_names(self) -> tuple[str, ...]:
        """As ``TrainingProposal.learner_names``.

        Raises:
            WireError: no model.
        """
        try:
            return names_in(self.model)
        except AnalyticError as error:
            raise WireError("the model that the server gave is none of this version") from error

    def check(self, server: bytes, session: bytes) -> None:
        """Refuse results that the server did not sign for this session.

        Raises:
            WireError: somebody else made or changed them, or they are another run's.
        """
        if not is_signed(server, self.signature, _LABEL, *_said(session, self.model, self.totals)):
            raise WireError("the results of this run are not signed by the roster's server; nothing of them is kept")


def _said(session: bytes, model: bytes, totals: bytes) -> tuple[bytes, ...]:
    return session, hashlib.sha256(model).digest(), hashlib.sha256(totals).digest()


@dataclass(frozen=True, slots=True)
class Results:
    """A folder of results, each named by what it is of.

    Args:
        folder: it is made where it is missing; only its owner enters it.
        n_models: how many models, evaluations and totals stay, the newest of each; None for all.
    """

    folder: Path
    n_models: int | None = None

    def keep_receipt(self, content: bytes) -> None:
        """Keep a receipt under the digest of its sum; ``analytic-secagg verify`` reads it.

        Raises:
            SiteFileError, OutputError: the folder cannot be written to.
        """
        self._keep(f"{Receipt.from_bytes(content).statement.configuration.hex()[:NAME_DIGITS]}.receipt", content)

    def keep(self, results: RunResults) -> None:
        """Keep a model or an evaluation, and totals that came with it, under its hash, which the log says in full.

        Raises:
            WireError: it is no model.
            SiteFileError, OutputError: as ``keep_receipt``.
        """
        try:
            saved = model_from_bytes(results.model)
        except AnalyticError as error:
            raise WireError("the model that the server gave is none of this version") from error
        weights = hashlib.sha256(saved.learner.weights_bytes(saved.model)).hexdigest()
        what = "evaluation" if saved.learner.name in EVALUATIONS else "model"
        LOG.info("a run ended in a model of %s with weights %s", saved.learner.name, weights)
        self._keep(f"{what}-{weights[:NAME_DIGITS]}.safetensors", results.model)
        if results.totals:
            self._keep(f"totals-{weights[:NAME_DIGITS]}.safetensors", results.totals)
        for kind in (what, "totals"):
            ordered = sorted(self.folder.glob(f"{kind}-*.safetensors"), key=lambda path: path.stat().st_mtime_ns)
            for path in ordered[: -(self.n_models or len(ordered))]:
                path.unlink()

    def _keep(self, name: str, content: bytes) -> None:
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise SiteFileError(
                f"cannot keep results in {self.folder}: {error.strerror}; name another folder"
            ) from error
        OutputFile(self.folder / name, private=True).write(content)
