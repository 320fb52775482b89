"""The modes of this app: which sum each makes of an invitation, as a party sees it that holds its own roster."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from federation import modes
from federation.site.roster import Roster
from federation.site.terms import Terms
from secagg import Assumptions, CommitteeSum, Layout, MaskedSum, PartyId, PlainSum
from secagg.errors import ConfigurationError
from secagg.he import BfvSum, CkksSum, EncryptionParameters, MaskedBfvSum, MaskedCkksSum, choose_parameters
from secagg.he.masked import MaskedEncryptedSum
from secagg.he.protocol import EncryptedSum
from secagg.masked.series import MaskedSeries
from secagg.primitives.identity import SIGNATURE_BYTES

Sum = PlainSum | CommitteeSum | MaskedSum | EncryptedSum
"""What a mode makes; a sum that is masked and encrypted is a ``MaskedSum`` too."""


Encrypted = EncryptedSum | MaskedEncryptedSum
"""A sum that a key holder decrypts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Basis:
    """What a party makes its sum from.

    Args:
        terms: the public parameters.
        roster: this party's own copy.
        layout: the vectors, which follow from the learner and its model.
        context: digest of everything that was received before this sum.
        signed_context: the key holder's signature and public context; empty where nothing is encrypted, or not yet.
    """

    terms: Terms
    roster: Roster
    layout: Layout
    context: bytes
    signed_context: bytes = field(default=b"", repr=False)

    def make_sum(self) -> Sum:
        """The sum.

        Raises:
            ConfigurationError: the terms name others than the roster, are unsafe, or the context is not the key
                holder's.
        """
        mode = self.mode
        if self.terms.place and not mode.has_series:
            raise ConfigurationError(f"sums of the mode {mode.name} stand by themselves; there is no series of them")
        self._check_parties("clients", self.terms.clients, self.roster.clients)
        self._check_parties(mode.table.replace("_", " ") or "helpers", self.terms.helpers, mode.helpers(self.roster))
        return mode.make(self)

    def _check_parties(self, who: str, named: tuple[PartyId, ...], listed: Mapping[PartyId, bytes]) -> None:
        """Only the roster says who takes part.

        A server that could leave helpers out would keep the one that it colludes with; one that could leave clients
        out would surround a client with its own. Who is away has a place in the terms, and is a dropout.
        """
        if named != tuple(sorted(listed)):
            raise ConfigurationError(
                f"the terms of a sum in the mode {self.mode.name} must name exactly the {len(listed)} {who} that this "
                f"party's roster lists, in their order; they name {len(named)}, of which "
                f"{len(set(named) - listed.keys())} are not in the roster. Compare fingerprints of rosters; if they "
                "agree, the server chose for itself"
            )

    @property
    def mode(self) -> Mode:
        """The terms' mode."""
        if self.terms.mode not in MODES:
            raise ConfigurationError(f"a mode is one of {', '.join(MODES)}")
        return MODES[self.terms.mode]

    @property
    def encryption(self) -> EncryptionParameters:
        """Scheme, ring and moduli. Nobody sends them: every party chooses the same.

        Raises:
            ConfigurationError: nothing is encrypted in this mode, or no parameters carry such a sum.
        """
        kind = self.mode.encrypts
        if kind is None:
            raise ConfigurationError(f"nothing is encrypted to a key holder in the mode {self.terms.mode}")
        masked = issubclass(kind, MaskedSum)
        return choose_parameters(self.layout, len(self.terms.clients), scheme=kind.SCHEME, masked=masked)

    @property
    def key_holder(self) -> PartyId:
        """Who decrypts."""
        if len(self.terms.helpers) != 1:
            raise ConfigurationError(f"the mode {self.terms.mode} has one key holder, not {len(self.terms.helpers)}")
        return self.terms.helpers[0]

    @property
    def series(self) -> MaskedSeries:
        """What all sums of the terms' series share."""
        terms = self.terms
        return MaskedSeries(
            clients=terms.clients,
            series_id=terms.session,
            assumptions=self.assumptions,
            identities=self.identities,
        )

    @property
    def assumptions(self) -> Assumptions:
        """The threat model of sums with masks of clients."""
        return Assumptions(corruption=self.terms.corruption, dropout=self.terms.dropout, malicious_server=True)

    @property
    def common(self) -> dict[str, Any]:
        """The fields that all sums have."""
        terms = self.terms
        return {
            "layout": self.layout,
            "clients": terms.clients,
            "session_id": terms.session,
            "context": self.context,
        }

    @property
    def identities(self) -> tuple[bytes, ...]:
        """The clients' public keys, in their order."""
        return tuple(self.roster.clients[party] for party in self.terms.clients)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mode:
    """One way to add vectors.

    Args:
        name: in a site's policy, in a run's settings and in terms.
        make: the sum.
        table: which of the roster's parties it needs beside clients; empty for none.
        encrypts: its class where vectors are encrypted to a key holder.
        has_series: whether sums can carry each other's set-up.
        checks_identities: whether the server learns within the sum whose a client's messages are.
    """

    name: str
    make: Callable[[Basis], Sum]
    table: Literal["", "helpers", "key_holder"] = ""
    encrypts: type[Encrypted] | None = None
    has_series: bool = False
    checks_identities: bool = False

    def helpers(self, roster: Roster) -> Mapping[PartyId, bytes]:
        """The parties of a roster that it needs beside clients, with their public keys."""
        return getattr(roster, self.table) if self.table else {}

    def signers(self, roster: Roster) -> Mapping[PartyId, bytes]:
        """Who signs what it says to the server (``signed_messages``), with its public key.

        These are the parties that have a signing key and that nothing else ties to their number. A committee's helpers
        have no such key.
        """
        clients = {} if self.checks_identities else roster.clients
        return {**clients, **(roster.key_holder if self.encrypts else {})}


def _plain(basis: Basis) -> PlainSum:
    return PlainSum(**basis.common, min_survivors=basis.terms.min_survivors)


def _committee(basis: Basis) -> CommitteeSum:
    return CommitteeSum(
        **basis.common,
        helper_keys=tuple((party, basis.roster.helpers[party]) for party in basis.terms.helpers),
        min_survivors=basis.terms.min_survivors,
        identities=basis.identities,
        server_identity=basis.roster.server,
    )


def _masked(basis: Basis, kind: type[MaskedSum] = MaskedSum, **encryption: Any) -> MaskedSum:
    if basis.terms.place:
        return basis.series.sum(basis.terms.place - 1, basis.layout, basis.context)
    return kind(
        **basis.common,
        assumptions=basis.assumptions,
        identities=basis.identities,
        **encryption,
    )


def _encrypted(basis: Basis, kind: type[EncryptedSum]) -> EncryptedSum:
    return kind(**basis.common, **_encryption(basis), min_survivors=basis.terms.min_survivors)


def _masked_encrypted(basis: Basis, kind: type[MaskedEncryptedSum]) -> MaskedSum:
    return _masked(basis, kind, **_encryption(basis))


def _encryption(basis: Basis) -> dict[str, Any]:
    holder, signed = basis.key_holder, basis.signed_context
    if not signed:
        raise ConfigurationError(
            f"the mode {basis.terms.mode} needs the public context of key holder {holder}, and this invitation brings "
            "none; the server asks the key holder for it first"
        )
    return {
        "parameters": basis.encryption,
        "public_context": signed[SIGNATURE_BYTES:],
        "key_holder": holder,
        "holder_identity": basis.roster.key_holder[holder],
        "context_signature": signed[:SIGNATURE_BYTES],
    }


MODES: Mapping[str, Mode] = {
    mode.name: mode
    for mode in (
        Mode(name="masked", make=_masked, has_series=True, checks_identities=True),
        Mode(name="committee", make=_committee, table="helpers"),
        Mode(name="ckks", make=partial(_encrypted, kind=CkksSum), table="key_holder", encrypts=CkksSum),
        Mode(name="bfv", make=partial(_encrypted, kind=BfvSum), table="key_holder", encrypts=BfvSum),
        Mode(
            name="masked+ckks",
            make=partial(_masked_encrypted, kind=MaskedCkksSum),
            table="key_holder",
            encrypts=MaskedCkksSum,
            checks_identities=True,
        ),
        Mode(
            name="masked+bfv",
            make=partial(_masked_encrypted, kind=MaskedBfvSum),
            table="key_holder",
            encrypts=MaskedBfvSum,
            checks_identities=True,
        ),
        Mode(name="plain", make=_plain),
    )
}
"""Every mode by name. A further one is one further line."""


def missing_extra(name: str) -> str:
    """What to install before this host can take part in a mode; empty if everything is there."""
    needed = modes.MODES[name]
    return "" if needed.installed else f"pip install 'analytic-secagg[{needed.extra}]'"
