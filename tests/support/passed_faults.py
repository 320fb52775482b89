"""Thirteen of fifty faults of an eighth blind list, by a fifth and a sixth hand: those that passed at first."""

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
