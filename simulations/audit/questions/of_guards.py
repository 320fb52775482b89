"""Questions that one guard alone answers: each guard was left out in turn, and no other question missed these."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import numpy as np

from analytic.fedhip import FedHiP
from analytic.model_files import SavedModel
from analytic.noisy_solve import NoisySolver
from federation.audit_plan import AuditPlan, Hypothesis, read_plan, signed_plan
from federation.changes import Change, changed, with_classes
from federation.federation import Federation
from federation.modes import MODES
from federation.server.run_settings import RunSettings, template_settings
from federation.site.presence import check_present, say_present
from federation.site.table import TableSchema
from federation.sum_setup import SumSetup
from federation.totals import differences
from secagg import InsecureSeededEntropy, PartySecrets, ReceiptedSum, SignedBy, SumProtocol, SumResult
from secagg.carriers.choice import SCHEMES, choose_parameters
from secagg.carriers.encrypted import Encrypted
from secagg.carriers.key_holder import write_request
from secagg.carriers.parameters import Scheme
from secagg.carriers.seal import ContextPair, generate_contexts
from secagg.committee.epochs import SealingKey
from secagg.committee.failure import CommitteeFailure
from secagg.committee.messages import SET_LABEL, set_hash
from secagg.config import SERVER
from secagg.dp import CentralNoisySum, NoisySum, make_room
from secagg.dp.audit import audit_noise
from secagg.dp.conversions import gdp_epsilon, gdp_rho, zcdp_epsilon, zcdp_rho
from secagg.dp.noise import WITHHELD
from secagg.errors import ConsentRefusedError
from secagg.layout import Layout
from secagg.masked.series import MaskedSeries
from secagg.plain import PlainSum
from secagg.ring import RingVector
from secagg.wire import MessageType, payload_of, seal_frame
from simulations.audit.questions import Question
from simulations.audit.questions.of_forms import DEEP, LABELLED, LINEAR, C, clients_of
from simulations.audit.questions.of_sessions import SPARSE, vector_of
from simulations.audit.questions.of_sums import (
    CLIENTS,
    FOUR,
    KEYS,
    LAYOUT,
    NOISE,
    PLAIN,
    SESSION,
    SHARES,
    SIGNED,
    SIGNERS,
)
from simulations.audit.questions.said import answer

OTHER = Layout.of([("counts", 4, 10)])
SERIES = MaskedSeries(clients=CLIENTS, series_id=SESSION, threshold=4, **SIGNERS)
HOLDER = 6


def about_guards() -> Iterator[Question]:
    """Return all of them."""
    yield from ((f"guard, {name}", ask) for name, ask in (_of_sums() | _of_noise() | _of_runs()).items())
    if MODES["bfv"].installed:
        for scheme in SCHEMES:
            yield f"guard, what a key holder of {scheme} is asked", partial(_asked_of_a_key_holder, scheme)
        yield from ((f"guard, {name}", ask) for name, ask in _of_contexts().items())


def _of_sums() -> dict[str, Callable[[], object]]:
    def member(number: int, layout: Layout = LAYOUT) -> Any:
        vector = vector_of(1)
        return SERIES.member(1, number, layout, b"", vector, secrets=PartySecrets(identity=KEYS[1]))

    text: Any = "text"

    def failure(*senders: int, kind: MessageType = MessageType.SET_SIGNATURE, by: int = 0) -> object:
        """What a server has that heard helpers say that a sum failed, of one kind of message or another."""
        asked = CommitteeFailure(FOUR, secrets=PartySecrets(identity=KEYS[SERVER]))
        for sender in senders:
            signed = KEYS[by or sender].sign(SET_LABEL, set_hash(FOUR.digest, {}))
            asked.receive(sender, seal_frame(
                kind, signed, digest=FOUR.digest, sender=sender, recipient=SERVER, identity=KEYS[sender]
            ))  # fmt: skip
        return asked.waiting_for

    def present(kind: MessageType, payload: bytes = b"") -> None:
        frame = seal_frame(kind, payload, digest=FOUR.digest, sender=6, recipient=SERVER, identity=KEYS[6])
        check_present(FOUR, 6, frame)

    return {
        "a series' vector of another layout": lambda: member(0, OTHER).start() is not None,
        "a later sum of a series that begins it": lambda: member(1).start(),
        "a series without an id": lambda: replace(SERIES, series_id=text),
        "receipts of helpers that a masked sum has not": lambda: ReceiptedSum(
            protocol=SIGNED, signed_by=SignedBy.HELPERS
        ),
        "a series of a committee": lambda: MODES["committee"].series(_setup(MODES["committee"].name)),
        "a sparse graph without a threshold": lambda: replace(SPARSE, threshold=None),
        "a sealing key that is none": lambda: SealingKey.signed(KEYS[6], bytes(32)).check(KEYS[6].public),
        "a failure that helpers signed": lambda: failure(6, 7),
        "a failure that a helper signed twice": lambda: failure(6, 6),
        "a failure that another helper signed": lambda: failure(6, by=7),
        "a failure in a message of another kind": lambda: failure(6, kind=MessageType.PRESENCE),
        "a helper that is present": lambda: check_present(FOUR, 6, say_present(FOUR, 6, KEYS[6])),
        "a helper that says something else": lambda: present(MessageType.SET_SIGNATURE),
        "a helper that says more than that it is present": lambda: present(MessageType.PRESENCE, b"more"),
    }


def _of_noise() -> dict[str, Callable[[], object]]:
    wide = replace(NOISE, levels=np.ones(200, dtype=np.uint8))
    partly = replace(NOISE, levels=np.array([1, 1, WITHHELD], dtype=np.uint8))
    shares = replace(SHARES, total=partly)
    central = CentralNoisySum(protocol=SIGNED, noise=partly)
    noisy = NoisySum(protocol=replace(SIGNED, layout=make_room(LAYOUT, 5, shares)), layout=LAYOUT, noise=shares)

    def withheld(protocol: Any, value: int, *, is_called: bool) -> object:
        """A client that gets as far as its vector, which says something where nothing is released, or not."""
        vector = np.array([1, 0, value])
        parties = {
            party: protocol.client(
                party,
                (lambda: vector) if is_called else vector,
                secrets=PartySecrets(identity=KEYS[party]),
                entropy=InsecureSeededEntropy(party, "questions"),
            )
            for party in CLIENTS
        }
        server = protocol.server(secrets=PartySecrets(identity=KEYS[SERVER]))
        said = {party: client.start() for party, client in parties.items()}
        for _ in range(2):
            for party, message in said.items():
                server.receive(party, message)
            said = {party: parties[party].receive(request) for party, request in server.close_round().items()}
        return len(said)

    def epsilons(loss: float, delta: float) -> tuple[float, float]:
        return gdp_epsilon(loss, delta), zcdp_epsilon(loss, delta)

    def losses(epsilon: float, delta: float) -> tuple[float, float]:
        return zcdp_rho(epsilon, delta), gdp_rho(epsilon, delta)

    drawn = np.random.default_rng(4).normal(0.0, 30.0, 200).astype(np.int64)
    return {
        "noise": lambda: audit_noise(drawn, wide),
        **{
            f"{name}, a vector of another shape": partial(
                protocol.client, 1, np.array([1, 0]), secrets=PartySecrets(identity=KEYS[1])
            )
            for name, protocol in (("shares of noise", noisy), ("a server's noise", central))
        },
        "noise of another size": lambda: audit_noise(drawn[:-1], wide),
        "noise of few coordinates": lambda: audit_noise(drawn[:3], NOISE),
        **{f"noise at {alpha}": partial(audit_noise, drawn, wide, alpha=alpha) for alpha in (0.0, 0.5)},
        **{
            f"{name}, {value} where nothing is released, called {is_called}": partial(
                withheld, protocol, value, is_called=is_called
            )
            for name, protocol in (("shares of noise", noisy), ("a server's noise", central))
            for value in (0, 1)
            for is_called in (False, True)
        },
        **{
            f"epsilon of {loss} at {delta}": partial(epsilons, loss, delta)
            for loss, delta in (
                (1.0, 1e-5),
                (-1.0, 1e-5),
                (math.inf, 1e-5),
                (math.nan, 1e-5),
                (1.0, 0.0),
                (1.0, 1.0),
                (1.0, 2.0),
            )
        },
        "an epsilon of next to no noise": lambda: gdp_epsilon(1e4, 1e-9),
        **{
            f"a loss for ({epsilon}, {delta})": partial(losses, epsilon, delta)
            for epsilon, delta in ((1.0, 1e-5), (0.0, 1e-5), (-1.0, 1e-5), (1.0, 0.0), (1.0, 1.0), (float("nan"), 0.1))
        },
    }


def _of_runs() -> dict[str, Callable[[], object]]:
    plan = AuditPlan(alpha=0.01, hypotheses=(Hypothesis(attack="a", mode="masked", expected="hidden"),))
    solver = NoisySolver(sigma=1.0)
    afl, rows = LABELLED["afl, ridge"], clients_of()

    def total(learner: Any, *, more: int = 0, sites: tuple[int, ...] = (1, 2, 3)) -> SumResult:
        step = Federation(learner, release=None).next_sum
        assert step is not None
        vector = np.sum([step.vector(own) for own in rows], axis=0)
        return SumResult(total=np.append(vector, np.zeros(more, dtype=np.int64)), survivors=sites)

    def joined(learner: Any, more: int = 0) -> tuple[int, ...]:
        before, batch = (total(learner, more=more, sites=tuple(range(at, at + 6))) for at in (1, 7))
        return changed(learner, before, batch, Change.JOIN).total.survivors

    def again(more: int) -> object:
        learner = LABELLED["afl, ridge"]
        model = learner.update(learner.init(), learner.spec.from_vector(total(learner).total), len(rows))
        return differences(SavedModel(learner=learner, model=model), [total(learner, more=more)])

    def bounded(most: Any) -> bool:
        return Federation(afl, release=None, max_client_rows=most).next_sum is not None

    def set_to(**own: Any) -> object:
        settings = RunSettings.of({**template_settings(), "n-features": 5, "n-classes": C, "max-rows": 99, **own})
        return settings.build_learner(8).name

    def schema(**columns: Any) -> str:
        known: dict[str, Any] = {"age": {}, "outcome": {"role": "target"}}
        return TableSchema(columns=known | columns).fingerprint

    return {
        "a plan whose time has no offset": lambda: read_plan(signed_plan(plan, KEYS[1], datetime(2025, 1, 2))),
        "a plan whose time has one": lambda: read_plan(signed_plan(plan, KEYS[1], datetime(2025, 1, 2, tzinfo=UTC)))[1],
        "more classes of several Grams": lambda: with_classes(LABELLED["qda"], total(LABELLED["qda"]), C + 1),
        "a change": lambda: joined(afl),
        "a change of another learner's total": lambda: joined(afl, more=1),
        "a change of a learner of several sums": lambda: joined(DEEP),
        "a total": lambda: again(0),
        "a total of another size": lambda: again(1),
        **{f"clients of at most {most!r} rows": partial(bounded, most) for most in (1, 0, -1, 2.0, True)},
        "settings": set_to,
        "patterns whose ridge is chosen": lambda: set_to(options="patterns=0+1,1+2", ridge="cv"),
        "logistic with an RI process": lambda: set_to(learner="logistic", ri=0.5),
        "logistic of real targets": lambda: set_to(learner="logistic", **{"target-format": "Q4.8"}),
        "lda of real targets": lambda: set_to(learner="lda", **{"target-format": "Q4.8"}),
        "deep layers with an RI process": lambda: set_to(learner="deepafl", ri=0.5),
        "qda": lambda: set_to(learner="qda", options="shrinkage=0.5"),
        "a ridge that is chosen with an RI process": lambda: set_to(ridge="cv", ri=0.5),
        "a schema": schema,
        "a target that may be missing": lambda: schema(outcome={"role": "target", "missing": "flag"}),
        "a weight": lambda: schema(n={"role": "weight"}),
        "two weights": lambda: schema(n={"role": "weight"}, m={"role": "weight"}),
        "a weight with a scale": lambda: schema(n={"role": "weight", "scale": 3}),
        "a weight that may be missing": lambda: schema(n={"role": "weight", "missing": "flag"}),
        "a solver without a row map": lambda: FedHiP(**LINEAR, ridge=0.1, solver=solver),
        "deep layers of a solver without a row map": lambda: replace(DEEP, solver=solver),
    }


def _setup(mode: str, **more: Any) -> SumSetup:
    return SumSetup(layout=LAYOUT, clients=CLIENTS, session_id=SESSION, **more)


def _encrypted(scheme: Scheme, contexts: ContextPair, **more: Any) -> PlainSum:
    own: dict[str, Any] = {"public_context": contexts.public_context, "key_holder": HOLDER}
    carrier = Encrypted(**{"parameters": choose_parameters(LAYOUT, 5, scheme=scheme), **own, **more})
    return replace(PLAIN, carrier=carrier)


def _asked_of_a_key_holder(scheme: Scheme) -> list[str]:
    """What a key holder makes of a request, of others that its server may send, of each again, and after its own no."""
    contexts = generate_contexts(choose_parameters(LAYOUT, 5, scheme=scheme))
    protocol: Any = _encrypted(scheme, contexts)
    cipher = protocol.carrier.cipher(protocol)
    upload = cipher.encrypt(RingVector.zeros(LAYOUT), contexts.public_context)

    def told(session: Any, message: bytes) -> bytes:
        """What is answered, less the digest of a sum whose keys are fresh."""
        return payload_of(session.receive(message))

    def no(protocol: SumProtocol, survivors: object, rows: object) -> None:
        raise ConsentRefusedError(f"{protocol.name} of {survivors} for {rows}")

    found = []
    for payload, kind in (
        (write_request(CLIENTS, upload), MessageType.DECRYPTION_REQUEST),
        (write_request(CLIENTS, upload + b"\0"), MessageType.DECRYPTION_REQUEST),
        (write_request(CLIENTS, upload[:-1]), MessageType.DECRYPTION_REQUEST),
        (write_request(CLIENTS[:3], upload), MessageType.DECRYPTION_REQUEST),
        (write_request((*CLIENTS[:4], 9), upload), MessageType.DECRYPTION_REQUEST),
        (write_request(CLIENTS, upload), MessageType.UNMASK_REQUEST),
    ):
        session = protocol.helper(HOLDER, secrets=PartySecrets(decryption=contexts.secret_context))
        request = seal_frame(kind, payload, digest=protocol.digest, sender=SERVER, recipient=HOLDER)
        for message in (request, request, seal_frame(
            MessageType.DECRYPTION_REQUEST, write_request(CLIENTS[:4], upload), digest=protocol.digest, sender=SERVER,
            recipient=HOLDER,
        )):  # fmt: skip
            found.append(answer(partial(told, session, message)))
            found.append(f"{session.state}")
        kept = protocol.helper(HOLDER, secrets=PartySecrets(decryption=contexts.secret_context))
        kept.restore(session.snapshot())
        found.append(answer(partial(told, kept, request)))
        unwilling = protocol.helper(HOLDER, secrets=PartySecrets(decryption=contexts.secret_context, consent=no))
        found.append(answer(partial(told, unwilling, request)))
    return found


def _of_contexts() -> dict[str, Callable[[], object]]:
    bfv, ckks = (choose_parameters(LAYOUT, 5, scheme=scheme) for scheme in ("bfv", "ckks"))
    huge = Layout.of([("huge", 10, 2**62)])

    def helped(party: int, secret: bytes | None = None, *, of: Any = bfv) -> object:
        contexts = generate_contexts(of)
        decryption = contexts.secret_context if secret is None else secret
        return _encrypted("bfv", generate_contexts(bfv)).helper(party, secrets=PartySecrets(decryption=decryption))

    def without_its_key_holder() -> object:
        protocol = _encrypted("bfv", generate_contexts(bfv))
        server = protocol.server()
        for party in CLIENTS:
            server.receive(party, protocol.client(party, vector_of(party)).start() or b"")
        return sorted(server.close_round()), server.close_round()

    def sealed_under(**more: Any) -> SumProtocol:
        return _encrypted("bfv", generate_contexts(bfv), **more)

    def encrypted(value: int, scheme: Scheme) -> int:
        own = choose_parameters(LAYOUT, 5, scheme=scheme)
        contexts = generate_contexts(own)
        protocol: Any = _encrypted(scheme, contexts)
        vector = RingVector.from_bytes(LAYOUT, bytes([1, value, 0]))
        return len(protocol.carrier.cipher(protocol).encrypt(vector, contexts.public_context))

    return {
        **{
            f"entries up to 10, {value} under {scheme}": partial(encrypted, value, scheme)
            for value in (10, 11, 245, 246)
            for scheme in SCHEMES
        },
        "key holder": lambda: helped(HOLDER) is not None,
        "a key holder that does not answer": without_its_key_holder,
        "a party that holds no key": lambda: helped(7),
        "no secret context": lambda: helped(HOLDER, b""),
        "a secret context that is too long": lambda: helped(HOLDER, bytes(1 << 24)),
        "a secret context of other parameters": lambda: helped(HOLDER, of=ckks),
        "a public context that is none": lambda: sealed_under(public_context=b"context"),
        "no public context": lambda: sealed_under(public_context=b""),
        "parameters for fewer clients": lambda: sealed_under(parameters=replace(bfv, n_clients=4)),
        "CKKS with a plain modulus": lambda: replace(ckks, plain_modulus=65537),
        "CKKS without a scale": lambda: replace(ckks, scale_bits=0),
        "CKKS with too large a scale": lambda: replace(ckks, scale_bits=200),
        "no parameters that carry a sum": lambda: choose_parameters(huge, 10**15, scheme="bfv"),
        "a public context with the secret key": lambda: _encrypted(
            "bfv", ContextPair(public_context=generate_contexts(bfv).secret_context, secret_context=b"")
        ),
        "a secret context without its key": lambda: helped(HOLDER, generate_contexts(bfv).public_context),
        "an identity that is too short": lambda: sealed_under(holder_identity=b"short"),
        "fewer survivors than two": lambda: replace(_encrypted("bfv", generate_contexts(bfv)), min_survivors=1),
        "more survivors than clients": lambda: replace(_encrypted("bfv", generate_contexts(bfv)), min_survivors=6),
        "two key holders": lambda: MODES["bfv"].make(_setup("bfv", helper_keys={6: bytes(32), 7: bytes(32)})),
    }
