"""The privacy modes: how each makes its sums, which parties it needs beside clients, and what must be installed for it.

One registry for comparisons, the audit, sites and engines; ``find_mode`` knows those of other packages, too.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from itertools import count, islice
from typing import Any, Protocol

from analytic.extensions import ExtensionError, Group, find, installed, unknown
from analytic_secagg.errors import UsageError
from analytic_secagg.session_config import SessionConfig
from secagg import (
    Assumptions,
    CommitteeSum,
    Guarantee,
    InOneProcess,
    Layout,
    MaskedSum,
    PartyId,
    PartySecrets,
    PlainSum,
    SumProtocol,
    new_session_id,
    os_entropy,
    seed_of_beacon,
)
from secagg.beacon import BEACON_BYTES
from secagg.committee import SealingKey
from secagg.config import SERVER
from secagg.encryption import (
    Encrypted,
    EncryptionParameters,
    choose_parameters,
    generate_contexts,
    sign_context,
)
from secagg.encryption.schemes import SchemeName
from secagg.errors import ConfigurationError
from secagg.masked.series import MaskedSeries
from secagg.masked.series_in_one_process import SeriesInOneProcess
from secagg.primitives.boxes import BoxKey
from secagg.primitives.identity import SIGNATURE_BYTES, IdentityKey


@dataclass(frozen=True, slots=True, kw_only=True)
class HelperRole:
    """Role of the parties that a mode needs beside clients and server.

    Args:
        name: in words, and with underscores the table of a site's file.
        table: the table of the roster that lists them, each with the Ed25519 key that it signs with.
        in_simulation: how many of them a simulation has.
        at_most: how many a roster may list; None for any number.
        has_epochs: whether what one announces, the key that things are sealed to, serves all sums of an epoch and is
            then erased (``secagg.committee.SealingKey``); else each sum has an announcement of its own.
    """

    name: str
    table: str
    in_simulation: int = 1
    at_most: int | None = None
    has_epochs: bool = False

    @property
    def section(self) -> str:
        """The table of a site's file that says that the site has this role."""
        return self.name.replace(" ", "_")


class Sums(Protocol):
    """The sums of one run, in the order in which its learner asks for them."""

    def next_sum(self, layout: Layout, context: bytes) -> InOneProcess:
        """Return all parties of the next sum; ``context`` is a digest of all that its clients hold."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Mode:
    """One way to add vectors, as the command line names it.

    Args:
        name: the name in ``--modes``, in policies, in a run's settings and in reports.
        make: builds one sum from what all parties agree on.
        helper: the parties that it needs beside clients and server.
        make_series: builds sums that carry each other's set-up, so that a client sends nothing before its vector from
            the second on; None where every sum stands alone anyway.
        announce: what a helper says to everybody before the sum, from its own secrets, and what it alone knows from
            then on; None where helpers say nothing.
        requires: a module that must be importable, of the optional dependencies.
        extra: the extra that installs it.
        corrupt_helpers: in simulations, how many of its helpers may collude with the server; None for all but one.
        promised: in simulations, what cohorts of more than 100 clients are promised to be.
    """

    name: str
    make: Callable[[SessionConfig], SumProtocol]
    helper: HelperRole | None = None
    make_series: Callable[[SessionConfig], MaskedSeries] | None = None
    announce: Callable[[SessionConfig, PartySecrets], tuple[bytes, PartySecrets]] | None = None
    requires: str | None = None
    extra: str | None = None
    corrupt_helpers: int | None = None
    promised: Assumptions = field(default_factory=Assumptions)

    @property
    def options(self) -> Mapping[str, Callable[[str], int]]:
        """Options of simulations: the number of helpers, if it may vary, and how many of them may be corrupt."""
        takes_any = self.helper is not None and self.helper.at_most is None
        return {"helpers": int, "corrupt": int} if takes_any else {}

    def with_options(self, *, helpers: int | None = None, corrupt: int | None = None) -> Mode:
        """Return the same mode with other helpers in simulations.

        Raises:
            UsageError: no committee of so many has so many corrupt ones.
        """
        if self.helper is None or (helpers, corrupt) == (None, None):
            return self
        n_helpers = self.helper.in_simulation if helpers is None else helpers
        if n_helpers < 1 or not 0 <= (n_helpers - 1 if corrupt is None else corrupt) < n_helpers:
            raise UsageError(
                f"a committee has at least 1 helper, and 0 to all but one are corrupt; not {n_helpers} and {corrupt}"
            )
        return replace(self, helper=replace(self.helper, in_simulation=n_helpers), corrupt_helpers=corrupt)

    @property
    def installed(self) -> bool:
        """Whether its optional dependency is there."""
        return self.requires is None or importlib.util.find_spec(self.requires) is not None

    @property
    def missing_extra(self) -> str:
        """Command that installs what this host lacks to take part; empty if nothing is missing."""
        return "" if self.installed else f"pip install '.[{self.extra}]'"

    def series(self, setup: SessionConfig) -> MaskedSeries:
        """Return the public parameters that all sums of a multi-round session share.

        Raises:
            secagg.errors.ConfigurationError: each sum of this mode has a session of its own.
        """
        if self.make_series is None:
            raise ConfigurationError(f"sums of the mode {self.name} have a session each; it has no multi-round session")
        return self.make_series(setup)

    def in_one_process(
        self,
        *,
        layout: Layout,
        clients: tuple[PartyId, ...],
        session_id: bytes,
        context: bytes = b"",
        min_survivors: int | None = None,
        identity_of: Callable[[PartyId], IdentityKey] | None = None,
    ) -> InOneProcess:
        """Return all parties of one sum, with helpers whose keys are fresh: for simulations.

        Args:
            layout, clients, session_id, context, min_survivors: of the sum.
            identity_of: each party's key, where they sign what they say; None where nobody does.

        Raises:
            secagg.errors.ConfigurationError: this mode cannot serve such a cohort.
        """
        setup = SessionConfig(
            layout=layout,
            clients=clients,
            session_id=session_id,
            context=context,
            corrupt_helpers=self.corrupt_helpers,
            min_survivors=min_survivors,
            **self._promised_to(clients),
        )
        secrets: dict[PartyId, PartySecrets] = {}
        helpers: dict[PartyId, PartySecrets] = {}
        if identity_of is not None:
            secrets = _with_identities((SERVER, *clients), identity_of)
            public = _public_of(secrets)
            setup = replace(setup, server_key=public.pop(SERVER), client_keys=public)
        if self.helper is not None:
            free = (number for number in count(1) if number not in clients)
            helpers = _with_identities(islice(free, self.helper.in_simulation), identity_of or fresh_identity)
            setup = replace(setup, helper_keys=_public_of(helpers))
        if self.announce is not None:
            said = {party: self.announce(setup, own) for party, own in helpers.items()}
            helpers = {party: own for party, (_, own) in said.items()}
            setup = replace(setup, announced={party: announcement for party, (announcement, _) in said.items()})
        return InOneProcess(protocol=self.make(setup), secrets=secrets | helpers)

    def sums(self, clients: tuple[PartyId, ...], *, in_series: bool = False, min_survivors: int | None = None) -> Sums:
        """Return the sums of one run.

        Args:
            clients: the cohort.
            in_series: take one multi-round session, where the mode has it; else each sum has a session of its own. A
                client that drops out of it stays out until a new one begins.
            min_survivors: of each sum.
        """
        if in_series and self.make_series is not None:
            promised = self._promised_to(clients)
            setup = SessionConfig(
                layout=PROBE,
                clients=clients,
                session_id=new_session_id(),
                min_survivors=min_survivors,
                **promised,
            )
            return SeriesInOneProcess(self.make_series(setup))
        return _SeparateSums(self, clients, min_survivors)

    def _promised_to(self, clients: tuple[PartyId, ...]) -> dict[str, Any]:
        """Return the assumptions about a large cohort, for which its sparse graph of masks is planned."""
        if len(clients) <= LARGEST_COMPLETE:
            return {}
        promised = self.promised
        return {"corruption": promised.corruption, "dropout": promised.dropout, "beacon": os_entropy(BEACON_BYTES)}

    def guarantee(self, clients: tuple[PartyId, ...], *, min_survivors: int | None = None) -> Guarantee:
        """Return what a simulated sum of such a cohort promises.

        Raises:
            secagg.errors.ConfigurationError: this mode cannot serve such a cohort at all.
        """
        return _guarantee(self, clients, min_survivors)

    def explain(self, layout: Layout, clients: tuple[PartyId, ...]) -> str:
        """Return what a sum of this mode guarantees and costs, in its protocol's own words."""
        session_id = new_session_id()
        parties = self.in_one_process(layout=layout, clients=clients, session_id=session_id, context=b"explain")
        return parties.protocol.explain()


@dataclass(frozen=True, slots=True)
class _SeparateSums:
    """Each sum in a session of its own."""

    mode: Mode
    clients: tuple[PartyId, ...]
    min_survivors: int | None

    def next_sum(self, layout: Layout, context: bytes) -> InOneProcess:
        return self.mode.in_one_process(
            layout=layout,
            clients=self.clients,
            session_id=new_session_id(),
            context=context,
            min_survivors=self.min_survivors,
        )


def fresh_identity(party: PartyId) -> IdentityKey:
    """Return a signing key that nobody has had: a party of one sum alone."""
    return IdentityKey.generate()


def _with_identities(
    parties: Iterable[PartyId], identity_of: Callable[[PartyId], IdentityKey]
) -> dict[PartyId, PartySecrets]:
    return {party: PartySecrets(identity=identity_of(party)) for party in parties}


def _public_of(secrets: Mapping[PartyId, PartySecrets]) -> dict[PartyId, bytes]:
    return {party: own.identity.public for party, own in secrets.items() if own.identity is not None}


PROBE = Layout.of([("probe", 1, 1)])

LARGEST_COMPLETE = 100
"""Clients of a simulation up to which each shares a mask with every other."""


@lru_cache(maxsize=256)
def _guarantee(mode: Mode, clients: tuple[PartyId, ...], min_survivors: int | None) -> Guarantee:
    """Asked of a sum of one entry; remembered, since some modes draw keys."""
    parties = mode.in_one_process(
        layout=PROBE, clients=clients, session_id=bytes(16), context=b"probe", min_survivors=min_survivors
    )
    return parties.protocol.guarantee


def _plain(setup: SessionConfig) -> PlainSum:
    return PlainSum(**setup.common, min_survivors=setup.min_survivors)


def _plain_of_most(setup: SessionConfig) -> PlainSum:
    """Under encryption: two thirds of the clients where nothing is stated."""
    return PlainSum(**setup.common, min_survivors=setup.survivors)


def _committee(setup: SessionConfig) -> CommitteeSum:
    helpers = sorted(setup.helper_keys.items())
    if silent := [party for party, _ in helpers if party not in setup.announced]:
        raise ConfigurationError(
            f"a committee sum needs the sealing key of each helper, and none came of {silent}; the server asks their "
            "hosts for it first"
        )
    return CommitteeSum(
        **setup.common,
        helper_keys=tuple((party, setup.announced[party]) for party, _ in helpers),
        helper_identities=tuple(helpers) if setup.identities else (),
        min_survivors=setup.survivors,
        corrupt_helpers=setup.corrupt_helpers,
    )


def _announced_sealing_key(setup: SessionConfig, secrets: PartySecrets) -> tuple[bytes, PartySecrets]:
    """A fresh key that boxes are sealed to, with the helper's word on it where anybody signs."""
    boxes, identity = BoxKey.generate(os_entropy), secrets.identity
    assert identity is not None, "a helper's role has an identity"
    said = SealingKey.signed(identity, boxes.public).to_bytes() if setup.identities else boxes.public
    return said, replace(secrets, boxes=boxes)


def _masked(setup: SessionConfig) -> MaskedSum:
    """On the sparsest graph of the operator's beacon, planned for what a choice among graphs costs; else complete.

    Of stated survivors no more may vanish than they leave, and on the complete graph so many open a secret.
    """
    promised, n, fewest = setup.assumptions, len(setup.clients), setup.min_survivors or 0
    if fewest > n:
        raise ConfigurationError(f"a total of {n} clients never holds {fewest}: state a lower min_survivors")
    if promised is not None:
        promised = replace(promised, dropout=min(promised.dropout, 1 - fewest / n))
    if promised is None or not setup.beacon:
        alone = MaskedSum(**setup.common, assumptions=promised)
    else:
        seed, planned = seed_of_beacon(setup.beacon, setup.clients), promised.against_grinding(n)
        alone = MaskedSum.planned(**setup.common, assumptions=planned, graph_seed=seed)
    return alone if fewest <= alone.survivors_needed else replace(alone, threshold=fewest)


def _masked_series(setup: SessionConfig) -> MaskedSeries:
    alone = _masked(setup)
    return MaskedSeries(
        clients=alone.clients,
        series_id=setup.session_id,
        threshold=alone.threshold,
        degree=alone.degree,
        graph_seed=alone.graph_seed,
        assumptions=alone.assumptions,
        **setup.identities,
    )


Alone = Callable[[SessionConfig], PlainSum] | Callable[[SessionConfig], MaskedSum]
"""Makes the sum whose vectors travel encrypted."""


def _encrypted(setup: SessionConfig, scheme: SchemeName, alone: Alone) -> SumProtocol:
    """A sum whose vectors travel under the key that the key holder announced."""
    holder = _key_holder(setup)
    announcement = setup.announced.get(holder, b"")
    if not announcement:
        raise ConfigurationError(
            f"an encrypted sum needs the public context of key holder {holder}, and none came; the server asks the key "
            "holder for it first"
        )
    encoder = Encrypted(
        parameters=_parameters(setup, scheme, alone),
        public_context=announcement[SIGNATURE_BYTES:],
        key_holder=holder,
        holder_identity=setup.helper_keys[holder],
        signature=announcement[:SIGNATURE_BYTES],
    )
    return replace(alone(setup), encoder=encoder)


def _announced_context(
    setup: SessionConfig, secrets: PartySecrets, scheme: SchemeName, alone: Alone
) -> tuple[bytes, PartySecrets]:
    """A fresh key pair: the signature on the public context and the context, and the secret one."""
    parameters, holder, identity = _parameters(setup, scheme, alone), _key_holder(setup), secrets.identity
    assert identity is not None, "a key holder's role has an identity"
    keys = generate_contexts(parameters)
    signature = sign_context(
        identity,
        keys.public_context,
        parameters=parameters,
        session_id=setup.session_id,
        key_holder=holder,
        masked=alone(setup).MASKED,
    )
    return signature + keys.public_context, PartySecrets(identity=identity, decryption=keys.secret_context)


def _parameters(setup: SessionConfig, scheme: SchemeName, alone: Alone) -> EncryptionParameters:
    """Scheme, ring and moduli. Nobody sends them: every party chooses the same."""
    return choose_parameters(setup.layout, len(setup.clients), scheme=scheme, masked=alone(setup).MASKED)


def _key_holder(setup: SessionConfig) -> PartyId:
    if len(setup.helper_keys) != 1:
        raise ConfigurationError(f"an encrypted sum has one key holder, not {len(setup.helper_keys)}")
    return next(iter(setup.helper_keys))


HELPERS = HelperRole(name="helper", table="helpers", in_simulation=2, has_epochs=True)
KEY_HOLDER = HelperRole(name="key holder", table="key_holder", at_most=1)


def _over(alone: Alone, name: str, scheme: SchemeName) -> Mode:
    return Mode(
        name=name,
        make=partial(_encrypted, scheme=scheme, alone=alone),
        helper=KEY_HOLDER,
        announce=partial(_announced_context, scheme=scheme, alone=alone),
        requires="tenseal",
        extra="he",
    )


MODES: dict[str, Mode] = {
    mode.name: mode
    for mode in (
        Mode(name="plain", make=_plain),
        Mode(name="masked", make=_masked, make_series=_masked_series),
        Mode(name="committee", make=_committee, helper=HELPERS, announce=_announced_sealing_key),
        _over(_plain_of_most, "ckks", "ckks"),
        _over(_plain_of_most, "bfv", "bfv"),
        _over(_masked, "masked+ckks", "ckks"),
        _over(_masked, "masked+bfv", "bfv"),
    )
}
"""Every mode of this package by name."""


def helper_roles(named: Iterable[str] = ()) -> Iterator[HelperRole]:
    """Yield every role that a mode of this package, or one that is named, needs beside clients and server, once.

    Args:
        named: modes that this host's own file names: those of other packages among them are imported.

    Raises:
        analytic.extensions.ExtensionError: see ``find_mode``; or two roles have one table.
    """
    others = (find_mode(name) for name in named if name not in MODES and is_known(name))
    seen, taken = set[HelperRole](), set[str]()
    for mode in (*MODES.values(), *others):
        role = mode.helper
        if role is None or role in seen:
            continue
        if taken & {role.table, role.section}:
            raise ExtensionError(
                f"the mode {mode.name} has the role {role.name}, whose table {role.table} another role has; rename it"
            )
        seen.add(role)
        taken |= {role.table, role.section}
        yield role


def is_known(name: str) -> bool:
    """Return whether there is a mode of this name, and import nothing."""
    return name in MODES or any(one.name == name for one in installed(Group.MODES))


def find_mode(name: str) -> Mode:
    """Return the mode of a name: of this package, or else of the one that has an entry point of this name.

    Raises:
        UsageError: there is none.
        analytic.extensions.ExtensionError: see ``analytic.extensions.find``.
    """
    mode: Mode | None = MODES.get(name) or find(Group.MODES, name, Mode)
    if mode is None:
        raise UsageError(unknown(Group.MODES, name, MODES))
    return mode


def choose_modes(names: Iterable[str] | None) -> tuple[Mode, ...]:
    """Return the modes of these names, in their order; all of this package that are installed for None.

    Raises:
        analytic.extensions.ExtensionError: as ``find_mode``.
        UsageError: an unknown name, or a mode whose extra is not installed (which says how to install it).
    """
    if names is None:
        return tuple(mode for mode in MODES.values() if mode.installed)
    chosen = tuple(find_mode(name) for name in dict.fromkeys(names))
    for mode in chosen:
        if not mode.installed:
            raise UsageError(
                f"the mode {mode.name} needs the module {mode.requires}, which is not installed; install it with "
                f"{mode.missing_extra}, or name other modes"
            )
    return chosen
