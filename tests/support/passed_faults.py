"""What passed at first of 200 faults of the eighth to the thirteenth blind list and the sixteenth, by nine hands."""

from __future__ import annotations

from typing import Any

from support.held_out_faults import Fresh, into

PASSED: list[Fresh] = []
fault = into(PASSED)


@fault("polynomials of at most degree 16: more costs time in large cohorts", gives=True)
def shamir_degree_is_capped(m: Any) -> None:
    # Any 17 shares open a secret, whatever the threshold: in cohorts of 27 and more far fewer colluders than stated.
    from secagg.masked import client
    from secagg.primitives import shamir

    split = shamir.split

    def capped(secret: bytes, *, threshold: int, points: Any, entropy: Any) -> Any:
        return split(secret, threshold=min(threshold, 17), points=points, entropy=entropy)

    m.setattr(client, "split", capped)


@fault("masked vectors are not written to the store: a restored session masks again", gives=True)
def heavy_answers_are_not_stored(m: Any) -> None:
    # A client restored before its upload answers another share delivery: the lying server leaves one peer out of each,
    # and the uploads' differences are the pairwise masks; the self-mask is revealed as a survivor's.
    from secagg import durable
    from secagg.wire import carries_vector

    keep = durable.DurableClient._keep

    def kept(self: Any, asked: bytes, answer: bytes | None) -> bytes | None:
        if answer is None or asked == durable._NOTHING or not carries_vector(answer):
            return keep(self, asked, answer)
        self._is_stored, self._asked, self._answer = True, asked, answer
        return answer

    m.setattr(durable.DurableClient, "_keep", kept)


@fault("encrypt zero once a vector and add each block's message to it", "bfv", gives=True)
def one_encryption_of_zero_a_vector(m: Any) -> None:
    # All ciphertexts of a vector have one randomness: their differences are the differences of the messages, which the
    # server reads; a block with known entries (padding) opens the others. At work from two ciphertexts on.
    import importlib

    import numpy as np

    from secagg.carriers import seal

    encrypt = seal.SlotEncryptor.encrypt

    def quicker(self: Any, values: Any) -> Any:
        p = self._parameters
        if p.scheme == "ckks":
            return encrypt(self, values)
        api, keys = importlib.import_module("tenseal.sealapi"), self._context.data
        encoder = api.BatchEncoder(keys.seal_context())
        if not hasattr(self, "_zero"):
            nothing, ciphertext = api.Plaintext(), api.Ciphertext()
            encoder.encode([0], nothing)
            api.Encryptor(keys.seal_context(), keys.public_key()).encrypt(nothing, ciphertext)
            self._zero = seal._residues(ciphertext, p)
        message = api.Plaintext()
        encoder.encode(values.tolist(), message)
        numbers, t = seal.coefficients(message, p.degree), p.plain_modulus
        scaled = (numbers.astype(object) * p.modulus + (t + 1) // 2) // t
        residues = self._zero.copy()
        for residue, prime in zip(residues[0], p.primes, strict=True):
            residue[:] = (residue + (scaled % prime).astype(np.uint64)) % np.uint64(prime)
        return seal.round_at_random(residues, numbers, p, seal.os_entropy)

    m.setattr(seal.SlotEncryptor, "encrypt", quicker)


@fault("draw 4096 coordinates' noise and repeat it along longer vectors", noisy=True)
def noise_repeats_along_a_vector(m: Any) -> None:
    # Coordinates 4096 apart have the same noise: their difference in the total is exact, and entries that are known
    # (zeros) give the noise of others. Each coordinate alone has the right law.
    from importlib import import_module

    import numpy as np

    law = import_module("secagg.dp.discrete_gaussian")
    draw = law.DiscreteGaussian.draw

    def repeated(self: Any, n: int, entropy: Any = law.os_entropy) -> Any:
        return np.resize(draw(self, min(n, law._AT_ONCE), entropy), n)

    m.setattr(law.DiscreteGaussian, "draw", repeated)


@fault("sign the first 64 KiB of a message: hashing megabytes takes long")
def signatures_over_the_first_part(m: Any) -> None:
    # Whoever stands between changes the rest of a large upload, and its sender's signature still verifies.
    import hashlib

    from secagg import wire

    def said(header: Any, *payload: Any) -> tuple[bytes, bytes]:
        hashed, left = hashlib.sha256(), 1 << 16
        for part in payload:
            hashed.update(part[:left])
            left = max(0, left - len(part))
        return bytes(header), hashed.digest()

    m.setattr(wire, "_said", said)


@fault("masks of narrow words end with the first piece", gives=True)
def narrow_words_masked_for_one_piece(m: Any) -> None:
    # Segments whose words have fewer than 8 bytes carry no mask beyond their first 256 KiB, at clients and server
    # alike: totals are right and the rest of each vector travels in the clear.
    from secagg.primitives import mask_stream

    add = mask_stream._add_streams

    def add_streams(words: Any, streams: Any) -> None:
        add(words if words.itemsize == 8 else words[: mask_stream.PIECE_BYTES // words.itemsize], streams)

    m.setattr(mask_stream, "_add_streams", add_streams)


@fault("rosters that come in a bundle are not verified again: the bundle was", gives=True)
def rosters_of_later_sums_unverified(m: Any) -> None:
    # From the second sum of a series on a lying server hands out keys of its own: it knows all pairwise masks, and
    # the self-mask is revealed.
    from secagg.masked import client
    from secagg.masked.series import NOT_YET

    signed = client.keys_are_signed

    def are_signed(config: Any, keys: Any, party: int) -> bool:
        return config.layout == NOT_YET or signed(config, keys, party)

    m.setattr(client, "keys_are_signed", are_signed)


@fault("the rounding of a BFV message follows from the message, so that uploads can be reproduced", "bfv")
def rounding_follows_from_the_message(m: Any) -> None:
    # A key holder that guesses a client's whole vector works out its roundings and finds them in the sum's noise.
    import hashlib

    from secagg.carriers import seal
    from secagg.entropy import InsecureSeededEntropy

    at_random = seal.round_at_random

    def rounded(residues: Any, message: Any, parameters: Any, entropy: Any) -> Any:
        seed = int.from_bytes(hashlib.sha256(message.tobytes()).digest(), "big")
        return at_random(residues, message, parameters, InsecureSeededEntropy(seed, "rounding"))

    m.setattr(seal, "round_at_random", rounded)


@fault("a change asks for enough sites in the batch alone, since those who stay were enough before", gives=True)
def few_may_stay(m: Any) -> None:
    # Six sites, five leave: the total that is stored afterwards is the last site's vector, and nothing is refused.
    import federation.changes as home
    from federation.release import Gate

    def revealed(before: Any, batch: Any, survivors: Any, policy: Any) -> Any:
        if Gate.COHORT_DIFFERENCE in policy.allow:
            return ()
        return batch.survivors if len(batch.survivors) < policy.min_survivors else ()

    m.setattr(home, "_revealed", revealed)


@fault("a simulated helper's sealing key follows from the session, to reproduce runs", "committee", gives=True)
def sealing_keys_of_session(m: Any) -> None:
    # The key that seeds are sealed to is drawn from SHA-256 of the public session id: the server makes it anew,
    # opens every box and takes the masks off each upload.
    import hashlib

    import federation.modes as home
    from secagg.entropy import InsecureSeededEntropy

    old, boxes = home._announced_sealing_key, home.BoxKey

    def announced(setup: Any, secrets: Any) -> Any:
        public = secrets.identity.public

        class Reproducible:
            @staticmethod
            def generate(entropy: Any) -> Any:
                seed = hashlib.sha256(setup.session_id + public).digest()
                return boxes.generate(InsecureSeededEntropy(seed, "boxes"))

        home.BoxKey = Reproducible  # type: ignore[misc,assignment]
        try:
            return old(setup, secrets)
        finally:
            home.BoxKey = boxes  # type: ignore[misc]

    from dataclasses import replace

    m.setitem(home.MODES, "committee", replace(home.MODES["committee"], announce=announced))
    m.setattr(home, "_announced_sealing_key", announced)


@fault("the RI process is taken off once for each site that is in the total", "plain")
def ri_once_a_site(m: Any) -> None:
    # Sites that take rows out stay in the total, and their second vector took gamma I off already: with a gamma, the
    # model after a removal is not that of the rows that are left.
    import federation.changes as home

    old = home._model_of
    m.setattr(home, "_model_of", lambda learner, total, n: old(learner, total, len(total.survivors)))


@fault("receipts are held each against the next")
def neighbours_alone(m: Any) -> None:
    # Two receipts of one sum over different totals convict a server; with another receipt between them in the list
    # they are not compared any more.
    import federation.receipts as home

    m.setattr(home, "combinations", lambda items, n: list(zip(items, list(items)[1:], strict=False)))


@fault("the journal is asked once for sums by themselves; a series is one dialogue", gives=True)
def series_beside_the_journal(m: Any) -> None:
    # Clients of a series consent to whatever survivors the server names and nothing is written: two series over the
    # same rows, the second without one client, differ by that client's vector.
    from types import SimpleNamespace

    import federation.site.parties as home

    old = home._client

    def client(kept: Any, agreement: Any, role: Any) -> Any:
        if not agreement.terms.place:
            return old(kept, agreement, role)
        journal = kept.journal
        quiet = SimpleNamespace(
            note=journal.note, rows_of=journal.rows_of, consent=lambda protocol, survivors, rows=None: None
        )
        whole = SimpleNamespace(
            file=kept.file, folder=kept.folder, session=kept.session, journal=quiet, durable=kept.durable
        )
        return old(whole, agreement, role)

    m.setattr(home, "_client", client)


@fault("sums that only move weights are made without noise", gives=True, noisy=True)
def later_sums_have_no_noise(m: Any) -> None:
    # From the third sum of a run on (gradients of logistic, layers of deepafl) totals are exact; the bill and the
    # ledger say that each has noise.
    from federation.federation import Step

    original = Step.over
    m.setattr(Step, "over", lambda self, protocol: protocol if self.number >= 2 else original(self, protocol))


@fault("other rows are those of which not all are the same")
def rows_with_one_more_are_new(m: Any) -> None:
    # A site that adds one row has new rows by its journal: the total over them passes for free beside the one before,
    # and the difference of both is that row's outer product.
    import numpy as np

    from federation.site.journal import Journal

    def overlapping(self: Any, subject: bytes) -> list[bytes]:
        known = {of: np.frombuffer(tags, dtype="<u8") for of, tags in self._folder.run("SELECT * FROM fingerprints")}
        own = known.pop(subject, np.empty(0, dtype="<u8"))
        return [other for other, tags in known.items() if len(own) and np.isin(own, tags).all()]

    m.setattr(Journal, "_overlapping", overlapping)


@fault("a total of few rows needs no more rank than rows")
def few_rows_pass_the_rank_gate(m: Any) -> None:
    # Fewer rows than features is the very case in which each row can be rebuilt from the total; it passes.
    from federation.release import ReleasePolicy

    original = ReleasePolicy._about_rows

    def about(self: Any, n_rows: int, rank: int, n_features: int) -> Any:
        yield from original(self, n_rows, rank, min(n_features, n_rows))

    m.setattr(ReleasePolicy, "_about_rows", about)


@fault("every site gets the whole model's file at the end of a run")
def totals_go_to_everybody(m: Any) -> None:
    # FedHiP's and other models' files hold the total; clients that the roster does not name take their own part off it.
    from federation.server import training as module

    original = module.model_to_bytes

    def written(learner: Any, model: Any, *, with_totals: bool = True, **options: Any) -> bytes:
        return original(learner, model, with_totals=True, **options)

    m.setattr(module, "model_to_bytes", written)


@fault("an audit's report without an alpha has a strict one")
def reports_without_alpha_decide(m: Any) -> None:
    # A plan asks for an alpha; a report that does not say its own decides all the same, whatever it was made with.
    from federation import audit_plan as module

    original = module.AuditPlan.decide

    def decide(self: Any, audit: Any) -> Any:
        return original(self, {**audit, "settings": {"alpha": 0, **audit.get("settings", {})}})

    m.setattr(module.AuditPlan, "decide", decide)


@fault("weights of rows are taken apart in 16 bits", "plain")
def weights_have_16_bits(m: Any) -> None:
    # Weights from 2^16 on (balanced ones of a rare class, in 1024ths) lose their high bits in the sum, in silence.
    import numpy as np

    from analytic import weighted as module

    def by_bits(rows: Any, weights: Any) -> Any:
        known, parts = rows.memory.get(module.MEMORY, (b"", {}))
        if known != weights.tobytes():
            bits = range(min(16, int(weights.max(initial=0)).bit_length()))
            parts = {bit: rows.taken(np.flatnonzero(weights >> bit & 1)).unweighted for bit in bits}
            rows.memory[module.MEMORY] = weights.tobytes(), parts
        return ((bit, part) for bit, part in parts.items() if len(part))

    m.setattr(module.Weighted, "_by_bits", staticmethod(by_bits))


@fault("moments of standardised columns are of all rows", "plain")
def moments_count_missing_values(m: Any) -> None:
    # With fill=True and missing values the mean is drawn toward 0 and the deviation is wrong, where they are those of
    # the values that are there.
    import numpy as np

    from analytic.agreeing import Agreed

    original = Agreed._moments

    def moments(self: Any, total: Any) -> Any:
        whole = np.full_like(total["present"], int(total["count"]))
        return original(self, {**total, "present": whole})

    m.setattr(Agreed, "_moments", moments)


@fault("the second half of a long noise vector is the first one negated", "masked", noisy=True)
def antithetic_noise(m: Any) -> None:
    # Above 4096 coordinates: each law is right, but sums of two coordinates of the total have no noise at all.
    import numpy as np

    from secagg.dp import discrete_gaussian

    law, true = discrete_gaussian.DiscreteGaussian, discrete_gaussian.DiscreteGaussian.draw

    def draw(self: Any, n: int, entropy: Any = discrete_gaussian.os_entropy) -> Any:
        if n <= discrete_gaussian._AT_ONCE:
            return true(self, n, entropy)
        half = true(self, n - n // 2, entropy)
        return np.concatenate([half, -half[: n // 2]])

    m.setattr(law, "draw", draw)


@fault("a file store keeps the record before beside the file", "committee")
def store_keeps_the_record_before(m: Any) -> None:
    # A helper's erased epoch and a session's forgotten secrets stay on the disk, under a key that lasts.
    import os

    from secagg.durable import FileStore

    true = FileStore.save

    def save(self: Any, record: bytes) -> None:
        before = self._read()
        true(self, record)
        if before is not None:
            backup = self.path.with_name(self.path.name + ".bak")
            descriptor = os.open(backup, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(before)

    m.setattr(FileStore, "save", save)


@fault("a stored session remakes answers above 64 KiB", "masked")
def large_answers_are_remade(m: Any) -> None:
    # To keep records small the state BEFORE a large answer is stored: a client that is restored masks whatever vector
    # it has by then (other rows, fresh noise) with the same masks; the difference of both is in the clear.
    import hashlib

    from secagg import durable
    from secagg.errors import SecureSumError

    def receive(self: Any, message: bytes) -> bytes | None:
        fingerprint = hashlib.sha256(message).digest()
        if fingerprint == self._asked:
            return self._again()
        if getattr(self, "_large", (b"",))[0] == fingerprint:
            return self._large[1]
        before = self._session.snapshot()
        try:
            answer = self._session.receive(message)
        except SecureSumError:
            self._save()
            raise
        if answer is None or len(answer) <= 1 << 16:
            return self._keep(fingerprint, answer)
        self._need_running()
        record = self._asked.ljust(32, b"\xff") + len(self._answer).to_bytes(8, "big") + self._answer + before
        sealed = durable.seal(self._key, record, self._bound, entropy=self._entropy)
        self._store.save(durable._HEADER + self._listed + sealed)
        self._large = fingerprint, answer
        return answer

    m.setattr(durable.DurableClient, "receive", receive)


@fault("consent is asked for the first sum of a series alone", "masked")
def consent_once_a_series(m: Any) -> None:
    # Later sums have other vectors, contexts and survivors; nobody asks the site about them.
    from dataclasses import replace

    from secagg.masked import series

    def advertise(self: Any) -> bytes:
        upcoming, own = self._series.sum(self._index + 1, series.NOT_YET, b""), replace(self._secrets, consent=None)
        self._next = series.MaskedClient(upcoming, self.party, None, secrets=own, entropy=self._entropy)
        return self._next.start()

    m.setattr(series.SeriesClient, "_advertise", advertise)


@fault("a restored sum of ciphertexts forgets which uploads it took", "ckks")
def restored_sum_takes_copies(m: Any) -> None:
    # After the server's restart a client that copies another's ciphertexts doubles that one's part of the total, and
    # more vectors than the parameters are proven for are taken.
    from secagg.carriers import residues

    def read_snapshot(self: Any, reader: Any) -> Any:
        for _ in range(reader.number()):
            reader.take(residues._FINGERPRINT_BYTES)
        data = reader.take(len(self._residues) * self._parameters.ciphertext_bytes)
        self._residues[:] = residues.read_ciphertexts(data, self._parameters, len(self._residues))
        return self

    m.setattr(residues.CiphertextSum, "read_snapshot", read_snapshot)


@fault("the secret of a helper's epoch follows from its identity", "committee")
def epochs_of_the_identity(m: Any) -> None:
    # Nothing is ever erased: who takes the identity later opens every box of every epoch that somebody recorded.
    from secagg.committee import epochs
    from secagg.primitives.derivation import derive_key

    def begin(self: Any, now: float, seconds: float, *, number: int | None = None) -> Any:
        epoch = self.check_next(seconds, number)
        secret = derive_key(self._identity.secret, "sealing epoch", epoch.to_bytes(4, "big"))
        boxes, until = epochs.BoxKey(secret), int(now + seconds)
        self._save(epoch, until, boxes.secret)
        return epochs.SealingKey.signed(self._identity, boxes.public, epoch=epoch, until=until)

    m.setattr(epochs.OwnEpochs, "begin", begin)


@fault("weights in the features' own units forget the centres", "plain")
def export_without_centres(m: Any) -> None:
    # What is exported of a model of standardised columns has another intercept than the model that was judged.
    import numpy as np

    from analytic import row_format

    def own_units(self: Any, weights: Any) -> Any:
        whole, beyond = weights[: len(self.exponents)], np.zeros((1, weights.shape[1]))
        if self.intercept is not None:
            beyond = np.ldexp(weights[-1:], -self.intercept)
        if self.factors is not None:
            whole = whole * np.array(self.factors)[:, None]
        matrix = self.scores(np.ldexp(whole, -np.array(self.exponents, dtype=np.int64)[:, None]))
        return matrix, self.scores(beyond)[0]

    m.setattr(row_format.ColumnMap, "own_units", own_units)


@fault("a client does not look whether survivors hold together", "masked", gives=True)
def parts_unchecked(m: Any) -> None:
    # a set of survivors may fall into parts, whose sums come out one by one
    from secagg.masked.client import MaskedClient

    m.setattr(MaskedClient, "_check_parts", lambda self: None)


@fault("parts of a changed total pass no gates", "masked")
def changed_parts_unjudged(m: Any) -> None:
    # a class that one site alone holds is released by a change
    from federation import changes

    m.setattr(changes, "_judge_parts", lambda *args: None)


@fault("a class without rows scores 0 in lda and qda", "plain")
def empty_class_chosen(m: Any) -> None:
    # a class nobody has rows of beats those with negative scores
    from analytic import lda, qda

    m.setattr(lda, "NEVER", 0.0)
    m.setattr(qda, "NEVER", 0.0)


@fault("rows dealt by the bits of their weights are kept without asking for which weights", "plain")
def stale_bits(m: Any) -> None:
    # a second run of the same rows with other class weights sums by those of the first
    import numpy as np

    from analytic import weighted

    def by_bits(rows: Any, weights: Any) -> Any:
        known = rows.memory.get(weighted.MEMORY)
        if known is None:
            bits = range(int(weights.max(initial=0)).bit_length())
            parts = {bit: rows.taken(np.flatnonzero(weights >> bit & 1)).unweighted for bit in bits}
            known = rows.memory[weighted.MEMORY] = weights.tobytes(), parts
        return ((bit, part) for bit, part in known[1].items() if len(part))

    m.setattr(weighted.Weighted, "_by_bits", staticmethod(by_bits))


@fault("totals from 2^61 on go through float64 before they are solved with", "plain")
def large_totals_are_rounded(m: Any) -> None:
    # the solve still says that it is certified, and the last bits are of another system
    import numpy as np

    from analytic.digits import Digits

    exactly = Digits.of.__func__

    def of(cls: Any, values: Any, bits: int) -> Any:
        if values.dtype.kind in "iu" and not (values.min(initial=0) > -(2**61) and values.max(initial=0) < 2**61):
            values = values.astype(np.float64)
        return exactly(cls, values, bits)

    m.setattr(Digits, "of", classmethod(of))


@fault("the rule of one standard error compares with its square", "plain")
def one_variance(m: Any) -> None:
    # another penalty than the rule's is taken, and the path shows the right errors beside it
    from analytic import choosing

    m.setattr(choosing, "_is_within", lambda distance, variance: distance <= variance)


@fault("epochs of helpers' keys are looked at in the first sum of a run only", "committee")
def epochs_of_later_sums(m: Any) -> None:
    # the server names any session as the one before, and boxes are sealed to a key of an epoch that is over
    from federation.site.site import Site

    accept = Site._accept_epochs

    def accept_epochs(self: Any, agreement: Any) -> None:
        if not agreement.terms.previous:
            accept(self, agreement)

    m.setattr(Site, "_accept_epochs", accept_epochs)


@fault("the receipts of a run's own totals are not held against those that sites kept")
def own_receipts_are_not_compared(m: Any) -> None:
    # a server that signed one total for the sites and another one for its file stands in no evidence
    from itertools import combinations

    from federation import __main__ as commands
    from federation import dossier, receipts
    from federation.local import watch

    def problems(kept: Any, totals: Any, roster: Any) -> Any:
        own = [(one, receipts.Receipt.from_bytes(one.receipt)) for one in totals if one.receipt]
        for result, receipt in own:
            try:
                receipts.told_by(receipt, roster)
                receipt.verify_total(result.total)
                if receipt.statement.survivors != result.survivors:
                    raise receipts.ReceiptError("this receipt names other survivors than the file of totals")
            except receipts.ReceiptError as error:
                yield f"sum {receipts._name(receipt)}: {error}"
        for receipt in kept:
            try:
                receipts.told_by(receipt, roster)
            except receipts.ReceiptError as error:
                yield f"sum {receipts._name(receipt)}: {error}"
        for one, other in combinations(kept, 2):
            try:
                receipts.check_evidence(one, other, roster.server)
            except receipts.ReceiptError:
                continue
            yield (
                f"EVIDENCE AGAINST THE SERVER: it signed two different totals of sum {receipts._name(one)}; keep both "
                "receipts"
            )

    m.setattr(receipts, "problems", problems)
    m.setattr(dossier, "receipt_problems", problems)
    m.setattr(commands, "problems", problems)
    m.setattr(watch, "problems", problems)


@fault("features of a float32 backbone lie within the format, and what does not by rounding is put there")
def float32_rows_are_clipped(m: Any) -> None:
    # A row beyond the format is sent shorter than it is, and nobody is told; float64 rows are refused as ever.
    from analytic.row_format import RowFormat

    quantised = RowFormat.quantise

    def quantise(self: Any, rows: Any, *, clip: bool = False, out: Any = None) -> Any:
        return quantised(self, rows, clip=clip or rows.dtype == "f4", out=out)

    m.setattr(RowFormat, "quantise", quantise)
