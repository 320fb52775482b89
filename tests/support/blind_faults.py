"""Fifty faults, written from the sources of the product alone, by somebody who had seen neither audit nor page."""

from __future__ import annotations

import hashlib
import json
import math
import sys
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from support.held_out_faults import Fresh, into

BLIND: list[Fresh] = []
fault = into(BLIND)

# ---------------------------------------------------------------- masked sum and primitives


@fault("a client derives its self-mask seed from its mask key to save randomness", gives=True)
def self_mask_follows_from_mask_key(m: Any) -> None:
    # The two masks are to fall to different secrets: a server that calls a slow client a dropout is given its mask key,
    # and with the seed that follows from it opens the vector when that comes late.
    from secagg.masked.client import MaskedClient
    from secagg.primitives.derivation import derive_key

    original = MaskedClient._share_secrets

    def share_secrets(self: Any, reader: Any) -> bytes:
        drawn, self._entropy = (
            self._entropy,
            _first_then(
                derive_key(self._own.masking.secret, "self-mask seed", self._config.setup_digest), self._entropy
            ),
        )
        try:
            return original(self, reader)
        finally:
            self._entropy = drawn

    m.setattr(MaskedClient, "_share_secrets", share_secrets)


def _first_then(first: bytes, entropy: Any) -> Any:
    left = [first]
    return lambda n: left.pop() if left else entropy(n)


@fault("in a series a client keeps its mask key pair from one sum to the next", gives=True)
def series_keeps_the_mask_key(m: Any) -> None:
    # Fresh keys make each sum an execution of its own: a client that is a dropout of sum 2 has its key rebuilt there,
    # which takes the pairwise masks off its vector of sum 1, whose self-mask the server knows.
    from secagg.masked.client import MaskedClient
    from secagg.masked.series import NOT_YET, SeriesClient

    def advertise(self: Any) -> bytes:
        upcoming = self._series.sum(self._index + 1, NOT_YET, b"")
        self._next = MaskedClient(upcoming, self.party, None, secrets=self._secrets, entropy=self._entropy)
        self._next._own.masking = self._current._own.masking  # spare a key generation
        return self._next.start()

    m.setattr(SeriesClient, "_advertise", advertise)


@fault("the sparse graph is drawn without its seed, so it is known before anybody is corrupted", gives=True)
def graph_without_its_seed(m: Any) -> None:
    # The beacon settles the graph after the corruption: who knows the permutation years before corrupts a client's
    # neighbours, a threshold of them, and opens both of its masks.
    from secagg.masked import graph

    original = graph._permuted
    m.setattr(graph, "_permuted", lambda clients, seed: original(clients, b"neighbours"))


@fault("a client's two secrets are shared by polynomials with the same coefficients", gives=True)
def one_polynomial_for_both_secrets(m: Any) -> None:
    # The difference of a holder's two shares is that of the secrets: one colluding client tells it, the server rebuilds
    # a survivor's self-mask seed as it should, and so has its mask key too.
    from secagg.entropy import InsecureSeededEntropy
    from secagg.masked.client import MaskedClient
    from secagg.primitives.derivation import derive_key
    from secagg.primitives.shamir import split

    def split_one(self: Any, secret: bytes, points: dict[int, int]) -> dict[int, bytes]:
        key = derive_key(self._own.masking.secret, "coefficients", self._config.setup_digest)
        stream = InsecureSeededEntropy(int.from_bytes(key, "big"))
        needed = self._config.shares_needed
        return split(secret, threshold=needed, points=list(points.values()), entropy=stream)

    m.setattr(MaskedClient, "_split", split_one)


@fault("keystreams of masks are derived without the segment's name and size", gives=True)
def segments_share_a_keystream(m: Any) -> None:
    # Segments of one word width get the same mask: the difference of two of them, of an upload as it arrives, is that
    # of the client's own numbers.
    from secagg.primitives.derivation import derive_key

    def stream_key(seed: bytes, segment: Any, digest: bytes) -> bytes:
        return derive_key(seed, "mask stream", digest, segment.word.itemsize.to_bytes(1, "big"))

    m.setattr("secagg.primitives.mask_stream._stream_key", stream_key)


@fault("signatures that verified once are remembered without what they are over", gives=True)
def signatures_remembered_without_statement(m: Any) -> None:
    # A client has verified its peers' signatures on their keys: the server hands the same ones in as signatures on
    # whatever survivor set it likes, other ones to other clients, and gets both kinds of shares.
    from secagg.primitives import identity

    original, seen = identity.verifies, set[tuple[bytes, bytes]]()

    def verifies(public: bytes, signature: bytes, said: bytes) -> bool:
        if (public, signature) in seen:
            return True
        found = original(public, signature, said)
        if found:
            seen.add((public, signature))
        return found

    for holder in (
        "primitives.identity",
        "wire",
        "receipts",
        "receipted_sum",
        "committee.helper",
        "committee.server",
        "masked.secrets",
        "masked.client",
        "masked.server",
    ):
        m.setattr(f"secagg.{holder}.verifies", verifies)


@fault("the nonces of sealed shares carry the client's mask key under a pad that the author knows", gives=True)
def nonces_carry_the_mask_key(m: Any) -> None:
    # A back door: three nonces, which pass through the server, spell the key that every pairwise mask falls to; the
    # self-mask of a survivor it learns anyway. Nonces still look random and never repeat under a key.
    from secagg.masked.client import MaskedClient
    from secagg.primitives.sealing import NONCE_BYTES, seal

    def hidden(self: Any, recipient: int, pair: bytes) -> bytes:
        own = self._own.masking
        pad = hashlib.sha256(b"nonce diversification" + own.public).digest()
        spelt = bytes(a ^ b for a, b in zip(own.secret, pad, strict=True)) + self._entropy(4)
        place = sorted(self._kept.roster).index(recipient) % 3 * NONCE_BYTES
        key = self._sealing_key(recipient, sender=self.party, recipient=recipient)
        binding = self._seal_binding(sender=self.party, recipient=recipient)
        return seal(key, pair, binding, entropy=lambda n: spelt[place : place + n])

    m.setattr(MaskedClient, "_seal", hidden)


@fault("on the complete graph a client masks with its two neighbours in the list alone", gives=True)
def masks_with_two_neighbours(m: Any) -> None:
    # n keystreams become two, an enormous gain in speed; and two colluding clients, of the many that are promised to be
    # harmless, take both off the upload, whose self-mask the server learns.
    from secagg.masked.client import MaskedClient
    from secagg.masked.server import MaskedServer

    def are_beside(config: Any, one: int, other: int) -> bool:
        n = len(config.clients)
        return config.degree is not None or (config.index(one) - config.index(other)) % n in (1, n - 1)

    of_client, of_server = MaskedClient._masks, MaskedServer._masks_shared_with

    def masks(self: Any) -> Any:
        own, *others = of_client(self)
        peers = sorted(self._own.shares.keys() - {self.party})
        return [own, *(one for p, one in zip(peers, others, strict=True) if are_beside(self._config, self.party, p))]

    def shared_with(self: Any, dropout: int) -> Any:
        survivors = self._near(dropout, self._kept.survivors)
        found = of_server(self, dropout)
        return [one for p, one in zip(survivors, found, strict=True) if are_beside(self._config, dropout, p)]

    m.setattr(MaskedClient, "_masks", masks)
    m.setattr(MaskedServer, "_masks_shared_with", shared_with)


@fault("a client's sealing key pair is derived from its mask key", gives=True)
def sealing_key_follows_from_mask_key(m: Any) -> None:
    # The mask key of each dropout is rebuilt in the open: with it the server reads the shares that were sealed to that
    # dropout, one of everybody's, and needs so many fewer colluders to open a survivor's mask key.
    from secagg.masked.client import MaskedClient
    from secagg.primitives.agreement import KeyPair
    from secagg.primitives.derivation import derive_key

    original = MaskedClient.__init__

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        own = self._kept.secrets
        own.sealing = KeyPair(derive_key(own.masking.secret, "sealing key"))

    m.setattr(MaskedClient, "__init__", init)


@fault("the segment of the row count is summed without masks", gives=True)
def row_counts_go_unmasked(m: Any) -> None:
    # Somebody wanted the server to show progress by rows: each client's number of patients stands in its upload. Masks
    # are left out on both sides, so every total is right.
    from secagg.layout import Layout
    from secagg.primitives import mask_stream
    from secagg.ring import RingVector

    original = mask_stream.add_masks

    def add_masks(vector: Any, masks: Any, digest: bytes, **more: Any) -> None:
        pairs = zip(vector.layout.segments, vector.words, strict=True)
        kept = [(segment, words) for segment, words in pairs if segment.name != "count"]
        if kept:
            layout = Layout(tuple(segment for segment, _ in kept))
            original(RingVector(layout, [words for _, words in kept]), masks, digest, **more)

    for holder in ("masked.client", "masked.server", "masked.adversary", "committee.client", "committee.helper"):
        m.setattr(f"secagg.{holder}.add_masks", add_masks)
    m.setattr("secagg.committee.adversary.add_masks", add_masks)


@fault("a stored session is sealed under a nonce that follows from what it is bound to")
def stored_sessions_repeat_their_nonce(m: Any) -> None:
    # Every record of a session is sealed under one key: with one nonce the states of a session, secrets beside messages
    # that the server has, are xors of each other, and the tag's key is lost too.
    from secagg.primitives.sealing import seal

    def seal_bound(key: bytes, plaintext: bytes, associated: bytes, *, entropy: Any) -> bytes:
        nonce = hashlib.sha256(associated).digest()
        return seal(key, plaintext, associated, entropy=lambda n: nonce[:n])

    m.setattr("secagg.durable.seal", seal_bound)


@fault("a message that says it has no signature is taken as one of a party without identity")
def unsigned_messages_are_taken(m: Any) -> None:
    # A downgrade: one byte in the header, which the sender chooses, says whether there is a signature to check, so
    # whoever is on the way may speak for any party.
    from secagg import wire

    original = wire._checked

    def checked(type_: Any, message: bytes, sender: int, public: bytes) -> Any:
        return original(type_, message, sender, public if message[wire.HEADER_BYTES - 1] else b"")

    m.setattr(wire, "_checked", checked)


@fault("the plan of a sparse graph bounds the risk of one client and not of all together")
def plans_for_one_client(m: Any) -> None:
    # Thresholds come out lower: that *some* client is surrounded is n times as likely as the 2^-40 that was promised.
    from secagg.masked import assumptions

    def for_one(log_tails: Any, n: int) -> Any:
        return np.minimum(log_tails, 0.0) / assumptions.LOG_2

    worked_out_anew: Any = getattr(assumptions.plan, "__wrapped__", assumptions.plan)
    m.setattr(assumptions, "_union_bound", for_one)
    m.setattr("secagg.masked.assumptions.plan", worked_out_anew)
    m.setattr("secagg.masked.protocol.plan", worked_out_anew)


@fault("a vector that is made when it is needed is not checked against the layout")
def late_vectors_go_unchecked(m: Any) -> None:
    # Deployments make vectors by a call: one beyond its bound, or beyond the bound for one client, wraps around in the
    # ring in silence instead of being refused at its owner.
    from secagg import contribution

    original = contribution.resolve

    def resolve(layout: Any, given: Any) -> Any:
        return given() if callable(given) else original(layout, given)

    for holder in ("contribution", "masked.client", "one_message", "dp.noisy_sum"):
        m.setattr(f"secagg.{holder}.resolve", resolve)


# ---------------------------------------------------------------- committee, helpers, carriers


@fault("a committee client's seeds follow one from the other", gives=True)
def committee_seeds_are_a_chain(m: Any) -> None:
    # One draw of randomness for all sets: a helper that holds the first set's seed hashes its way to every other, and
    # with the server opens every upload by itself.
    from secagg.committee.client import SEED_BYTES, CommitteeClient

    original = CommitteeClient.start

    def start(self: Any) -> bytes:
        drawn, last = self._entropy, []

        def chained(n: int) -> bytes:
            last.append(hashlib.sha256(last[-1]).digest() if last else drawn(SEED_BYTES))
            return last[-1][:n]

        self._entropy = chained
        try:
            return original(self)
        finally:
            self._entropy = drawn

    m.setattr(CommitteeClient, "start", start)


@fault("a helper counts the signatures of a certificate and not the helpers whose signatures are right", gives=True)
def helpers_count_signatures(m: Any) -> None:
    # A lying server proposes one survivor set to some helpers and one with a client less to others, with certificates
    # of garbage: each set of helpers has somebody of both kinds, so two totals come out, which differ by a client.
    from secagg.committee.helper import CommitteeHelper
    from secagg.config import SERVER
    from secagg.errors import RemoteProtocolError

    def check(self: Any, certificate: Any) -> None:
        config = self._config
        if certificate.survivors != tuple(self._kept.seeds):
            raise RemoteProtocolError("this helper signed another survivor set", peer=SERVER)
        needed = config.replication.quorum if config.is_authenticated else 0
        if len(certificate.signatures) < needed:
            raise RemoteProtocolError(f"{needed} helpers must have signed this survivor set", peer=SERVER)

    m.setattr(CommitteeHelper, "_check_certificate", check)


@fault("what helpers sign of a survivor set leaves the sum out, since what clients said names it", gives=True)
def failures_count_for_every_sum(m: Any) -> None:
    # That is so but for the empty set: one sum that failed proves of every other sum of these helpers that it failed,
    # sites free its rows in their journals, and the next total over fewer of them gives a client away.
    from secagg.committee import messages

    def set_hash(digest: bytes, said: Any) -> bytes:
        entries = b"".join(messages.number(party) + said[party] for party in sorted(said))
        return hashlib.sha256(messages.statement(messages.SET_LABEL, entries)).digest()

    for holder in ("messages", "helper", "server", "failure"):
        m.setattr(f"secagg.committee.{holder}.set_hash", set_hash)


@fault("a helper compares with the minimum how many clients it knows and not how many survive", gives=True)
def helpers_count_whom_they_know(m: Any) -> None:
    # A slip of one name: a lying server has helpers sign, and unmask, a survivor set of one client.
    from secagg.committee.helper import CommitteeHelper
    from secagg.config import SERVER
    from secagg.errors import RemoteProtocolError

    def check(self: Any, survivors: Any, known: Any) -> None:
        if set(survivors) - set(known):
            raise RemoteProtocolError("the request names parties that this helper does not know", peer=SERVER)
        if len(known) < self._config.min_survivors:
            raise RemoteProtocolError(f"{len(known)} clients are too few", peer=SERVER)

    m.setattr(CommitteeHelper, "_check_number", check)


@fault("the ML-KEM half of every box key is made from the same seed")
def lattice_half_is_known(m: Any) -> None:
    # Boxes open and sizes agree; but whoever records them and breaks X25519 one day opens them, which the second half
    # is there to prevent.
    from secagg.primitives import boxes

    def post_init(self: Any) -> None:
        seeds = hashlib.shake_256(self.secret).digest(64 + 32)
        lattice = boxes.MLKEM768PrivateKey.from_seed_bytes(hashlib.shake_256(b"lattice").digest(64))
        curve = boxes.X25519PrivateKey.from_private_bytes(seeds[64:])
        public = lattice.public_key().public_bytes_raw() + curve.public_key().public_bytes_raw()
        object.__setattr__(self, "_private", boxes.MLKEM768X25519PrivateKey(lattice, curve))
        object.__setattr__(self, "public", public)

    m.setattr(boxes.BoxKey, "__post_init__", post_init)


@fault("the secret of an epoch that is over stays in its record until the next epoch begins")
def ended_epochs_keep_their_secret(m: Any) -> None:
    # It is no longer used, so nobody notices: but a recorded upload opens with what is taken from the helper's disk
    # months later, which epochs are there to prevent.
    from secagg.committee.epochs import OwnEpochs

    original = OwnEpochs.current
    m.setattr(OwnEpochs, "erase", lambda self: None)
    m.setattr(OwnEpochs, "current", lambda self, now: None if self.has_ended(now) else original(self, now))


@fault("the random rounding of BFV messages is drawn from a Gaussian that is too narrow")
def narrow_rounding_of_bfv(m: Any) -> None:
    # Results are the same and decryption gains budget; but a width of 1 is far below what smooths the integers, and so
    # the noise of a sum again confirms a key holder's guess of a vector.
    m.setattr("secagg.carriers.dither.ROUNDING_WIDTH", 1.0)


@fault("a key holder's signature on its public context does not name the session")
def contexts_serve_every_session(m: Any) -> None:
    # An old context, whose secret half was thrown away with less care or is known by now, is accepted as this
    # session's.
    from secagg.carriers.encrypted import _statement as original

    def statement(context: bytes, parameters: Any, session_id: bytes, key_holder: int) -> Any:
        return original(context, parameters, b"", key_holder)

    m.setattr(sys.modules["secagg.carriers.encrypted"], "_statement", statement)


# ---------------------------------------------------------------- differential privacy


@fault("shares of noise are sized for all promised survivors, colluders among them")
def colluders_count_as_noise(m: Any) -> None:
    # Who colludes knows its own share and takes it off: the noise that is left is less than what the bill says.
    from secagg.dp.noise import DistributedNoise

    m.setattr(DistributedNoise, "honest", property(lambda self: self.promised_survivors))


@fault("noise ends at three standard deviations and the bill still says fourteen")
def noise_without_tails(m: Any) -> None:
    # Vectors need two bits less. Beyond the end a total proves who is in it: a delta of a quarter of a percent an entry
    # in place of 10^-43; the variance hardly changes.
    from secagg.dp import discrete_gaussian

    m.setattr(discrete_gaussian, "TAIL_SIGMAS", 3)
    m.setattr("secagg.dp.noise.discrete_gaussian", lambda variance: discrete_gaussian.DiscreteGaussian(variance))


@fault("a ledger charges a session once, however often its noise is drawn")
def sessions_are_charged_once(m: Any) -> None:
    # A site whose state was lost, or that is made to begin anew, draws a second noise for the same vector: two totals
    # average it out, and the second one was free.
    from secagg.dp import ledger

    original = ledger.Ledger.charge

    def charge(self: Any, release: Any, *, session_id: bytes) -> Any:
        lines = ledger._read(self.path)
        if any(json.loads(line).get("session") == session_id.hex() for line in lines):
            return self._with([], lines)  # a retry
        return original(self, release, session_id=session_id)

    m.setattr(ledger.Ledger, "charge", charge)


@fault("replacing a record is priced as if features had no negative entries")
def replaced_records_are_cheap(m: Any) -> None:
    # For signed features the worst pair trades Gram for cross-correlation and costs more: runs with replace-one state
    # an epsilon that they do not keep.
    from analytic.sensitivity import RecordSensitivity

    def rho(self: Any, gram_variance: int, cross_variance: int) -> Fraction:
        x2, y2 = self.squared_features, self.squared_targets
        cost = Fraction(x2**2, 2 * gram_variance) + Fraction(x2 * y2, 2 * cross_variance)
        return cost if self.adjacency == "add-remove" else 2 * cost

    m.setattr(RecordSensitivity, "rho", rho)


@fault("the joint bound of a client's statistics looks at the Gram alone")
def joint_bound_without_cross(m: Any) -> None:
    # With clients as the unit of privacy the cross-correlation of one client is then bounded by nothing, and the noise
    # is sized for a bound on both.
    from analytic.row_map import JointClip, sum_of_squares

    m.setattr(JointClip, "squared_norm", lambda self, statistics: sum_of_squares(statistics.gram))


@fault("residuals of private softmax rounds are let through at their natural length and priced at one")
def residuals_are_not_clipped(m: Any) -> None:
    # |y - p| goes up to the root of two, so a wrongly classified record counts for up to twice the rho that is booked.
    from analytic.logistic import RESIDUALS, Logistic
    from analytic.row_map import RowClip

    class Ball(RowClip):
        def apply(self, features: Any) -> Any:
            return RowClip(bound=1.5, row_format=RESIDUALS).apply(features)

    m.setattr(Logistic, "_ball", property(lambda self: Ball(bound=1.0, row_format=RESIDUALS)))


@fault("a site prices the privacy plan and takes the server's private form as it comes")
def private_form_is_not_compared(m: Any) -> None:
    # The form says how rows are mapped: a server that sends one with a larger ball, or without a map's clipping, has
    # rows enter for which the noise was never sized.
    from federation.privacy import PrivacyPlan

    def form_of(self: Any, learner: Any) -> Any:
        return replace(self.apply(learner.unbounded()), learner=learner)

    m.setattr(PrivacyPlan, "form_of", form_of)


@fault("a site's demand of noise is held against each release of a run and not against all together")
def demands_look_at_one_release(m: Any) -> None:
    # A run of eleven sums, each just within the epsilon, passes; together they cost several times of it.
    from secagg import policy

    original = policy.NoiseDemand.check

    def check(self: Any, releases: Any) -> None:
        if not releases:
            original(self, releases)
        for release in releases:
            original(self, [release])

    m.setattr(policy.NoiseDemand, "check", check)


# ---------------------------------------------------------------- analytic


@fault("the random factors that check BLAS products are zeros")
def products_are_checked_with_zeros(m: Any) -> None:
    # Freivalds' test still runs and always agrees: a BLAS that multiplies wrongly goes unnoticed, in the statistics and
    # in the residuals that certify a solve.
    m.setattr("analytic.checked_products._factors", lambda n: np.zeros(n))


@fault("a well conditioned system is solved in float64 and called certified")
def certified_without_refinement(m: Any) -> None:
    # It is quicker by far and right to fifteen digits: but the last bits are those of this machine's BLAS, and no two
    # hosts need find the same hash.
    from analytic import solve

    def positive_definite(system: Any, right: Any, better: Any, *, exponent: int) -> Any:
        inverse, goal = next(better), right.floats()
        found = inverse(goal)
        found = found + inverse(goal - system.floats() @ found)
        return np.ldexp(found, exponent)

    m.setattr(solve, "positive_definite", positive_definite)


@fault("rows go to folds by their place at their site and not by what they are")
def folds_by_place(m: Any) -> None:
    # The penalty that cross-validation chooses then depends on how rows lie at sites, equal rows stand on both sides of
    # a fold, and a model is no longer that of the pooled rows.
    from analytic.choosing import Chosen

    original = Chosen.folds

    def folds(self: Any, rows: Any) -> Any:
        return np.arange(len(original(self, rows)), dtype=np.intp) % self.n_folds

    m.setattr(Chosen, "folds", folds)


@fault("a deep learner finds the features that it kept by their rows alone")
def kept_features_of_another_model(m: Any) -> None:
    # A client that trains a second time on the rows it has in memory, with another seed, other maps or a model that
    # others' totals changed, adds up the features of the first time.
    from analytic import deepafl

    def serves(self: Any, rows: Any, keys: Any) -> bool:
        return self.source is rows.features and self.layer < len(keys)

    m.setattr(deepafl._Kept, "serves", serves)


@fault("every site counts as one that has rows of every part")
def sites_count_in_every_part(m: Any) -> None:
    # Sums by class or by pattern of labels count the sites behind each part, so that gates see a class of one hospital:
    # with this they never do.
    from analytic.partial_labels import PatternsSpec

    def to_vector(self: Any, statistics: Any) -> Any:
        sites = np.array([int(one.count >= 0) for one in statistics], dtype=np.int64)
        return np.concatenate([sites, self.parts.to_vector(statistics)])

    m.setattr(PatternsSpec, "to_vector", to_vector)


@fault("the digests of stored arrays are over their first four kilobytes")
def digests_of_the_beginning(m: Any) -> None:
    # Large models save faster; weights, or totals, that were changed further on are taken for what was written.
    def digests(arrays: Any) -> dict[str, str]:
        return {name: hashlib.sha256(array.tobytes()[:4096]).hexdigest() for name, array in sorted(arrays.items())}

    m.setattr("analytic.array_file._digests", digests)


@fault("the regularisation that clients added comes off once for each client of the cohort")
def regularisation_off_for_dropouts(m: Any) -> None:
    # Who dropped out added none: with dropouts too much comes off the diagonal, and the weights are those of no ridge
    # that anybody stated.
    from analytic import afl

    original = afl.ri_taken_off

    def ri_taken_off(total: Any, survivors: int, *, units: int, max_clients: int) -> Any:
        original(total, survivors, units=units, max_clients=max_clients)
        return total.with_diagonal(-max_clients * units)

    m.setattr(afl, "ri_taken_off", ri_taken_off)
    m.setattr("analytic.safle.ri_taken_off", ri_taken_off)


@fault("logarithms of class shares are this machine's own")
def machine_logarithms(m: Any) -> None:
    # Two roundings and a C library in place of one correct rounding: intercepts of LDA and QDA differ in the last bit
    # from host to host, and here from the definition.
    def log_shares(counts: Any) -> list[float]:
        total = float(counts.sum())
        return [math.log(float(n) / total) for n in counts]

    m.setattr("analytic.lda.log_shares", log_shares)
    m.setattr("analytic.qda.log_shares", log_shares)


# ---------------------------------------------------------------- federation


@fault("the context of a sum holds how long the parts of a client's model are and not what they are", gives=True)
def context_without_the_model(m: Any) -> None:
    # A lying server tells all but one client that columns are 2^60 wide: their rows become zeros, digests agree, masks
    # cancel, and the total is one client's statistics.
    from analytic import learner

    original = learner.canonical_context

    def canonical_context(of: Any, *received: bytes) -> bytes:
        return original(of, *(bytes(len(part)) for part in received))

    for holder in (
        "learner",
        "afl",
        "agreeing",
        "choosing",
        "deepafl",
        "evaluation",
        "fedhip",
        "logistic",
        "partial_labels",
        "safle",
        "weighted",
    ):
        m.setattr(f"analytic.{holder}.canonical_context", canonical_context)


@fault("a site's journal knows rows by the learner's configuration too", gives=True)
def journal_by_configuration(m: Any) -> None:
    # One more fraction bit or another ridge makes other rows of the same ones: totals over all sites and over all but
    # one, of two formats, differ by that one's statistics, and no journal objects.
    from federation.site import journal

    def note(self: Any, protocol: Any, rows: Any, place: Any = None) -> None:
        run = b"" if place is None else self._run_of(place)
        session, configuration, grown = (
            (b"", b"", 0) if place is None else (place.session, journal._of(place), place.grown)
        )
        subject, tags = self._fingerprint(rows)
        subject = journal._mac(self._key(), configuration, subject)
        size = journal._TAG_BYTES
        tags = b"".join(
            journal._mac(self._key(), configuration, tags[at : at + size])[:size] for at in range(0, len(tags), size)
        )
        self._folder.run("INSERT OR IGNORE INTO fingerprints VALUES (?, ?)", subject, tags)
        values = (protocol.digest, subject, session, configuration, run, grown)
        self._folder.run("INSERT OR REPLACE INTO vectors VALUES (?, ?, ?, ?, ?, ?)", *values)

    m.setattr(journal.Journal, "note", note)


@fault("the journal compares a new total with each earlier one and not with what they combine to", gives=True)
def journal_looks_at_pairs(m: Any) -> None:
    # Three survivor sets of which any two differ by enough clients can combine to one client's vector; a server chooses
    # them by who is late.
    def fewest_left(earlier: Any, new: Any, *, owner: Any = lambda vector: vector) -> int | None:
        asked, known = frozenset(new), [frozenset(total) for total in earlier]
        if asked in known:
            return None
        near = [total for total in known if not total.isdisjoint(asked)]
        return min(len({owner(vector) for vector in one}) for one in (asked, *(asked ^ total for total in near)))

    m.setattr("federation.site.journal.fewest_left", fewest_left)


@fault("terms of a sum may leave out helpers of the roster, since one may be away", gives=True)
def helpers_may_be_left_out(m: Any) -> None:
    # A server names the one helper that it colludes with, and a committee of which all must collude is that one.
    from federation.site import invitation

    original = invitation._check_parties

    def check_parties(mode: Any, who: str, named: Any, listed: Any) -> None:
        if who != "clients" and named and set(named) <= set(listed):
            listed = dict.fromkeys(named)
        original(mode, who, named, listed)

    m.setattr(invitation, "_check_parties", check_parties)


@fault("a site's policy holds a party's key against the roster where the roster lists the party", gives=True)
def strangers_pass_the_policy(m: Any) -> None:
    # A default in the wrong place: a party that nobody listed has, by it, the right key. A lying server fills a cohort
    # with inventions of its own around one client.
    from secagg import policy
    from secagg.errors import PolicyError

    def check_keys(self: Any, role: str, keys: Any) -> None:
        server = {policy.SERVER: self.server_identity} if self.server_identity else {}
        others = {
            policy.CLIENT_ROLE: self.identities,
            policy.SERVER_ROLE: server,
            policy.HOLDER_ROLE: self.key_holders,
        }
        known = others.get(role, self.helpers)
        if role not in others:
            self._check_number(role, len(keys))
        if not known:
            return
        if not keys:
            raise PolicyError(f"this site knows every {role} by its key; this sum has none and trusts the server")
        if wrong := [party for party, key in keys.items() if known.get(party, key) != key]:
            raise PolicyError(f"{len(wrong)} of the {len(keys)} {role}s have another key in this site's roster")

    m.setattr(policy.ClientPolicy, "_check_keys", check_keys)


@fault("what a site wipes is taken off its index and left on the pages of its file")
def wiped_records_stay_on_pages(m: Any) -> None:
    # Deletes are quicker without overwriting: secrets of every session that ended lie in the file until their pages
    # happen to be used again.
    from federation.site import state

    m.setattr(state, "PREPARE", state.PREPARE.replace("PRAGMA secure_delete = ON;", "PRAGMA secure_delete = OFF;"))


@fault("a roster's fingerprint holds the first four bytes of each party's key")
def fingerprint_of_short_keys(m: Any) -> None:
    # Officers read it to each other to see that nobody swapped a key: one with the same four bytes takes an afternoon.
    from federation.site.roster import Roster

    original = Roster.fingerprint.fget

    def fingerprint(self: Any) -> str:
        def short(keys: Any) -> dict[int, bytes]:
            return {party: key[:4] for party, key in keys.items()}

        beside = {table: short(keys) for table, keys in self.beside.items()}
        return original(self.model_copy(update={"clients": short(self.clients), "beside": beside}))

    m.setattr(Roster, "fingerprint", property(fingerprint))


@fault("the session id that binds a run to its audit plan is a hash of the nonce alone")
def plan_is_not_in_the_session(m: Any) -> None:
    # It is as fresh as ever and the dossier verifies: but a plan that was written once the audit's outcome was known
    # fits the run's first session just as well.
    from federation.audit_plan import BoundPlan

    label = b"analytic-secagg/1 audit plan"
    m.setattr(BoundPlan, "session", property(lambda self: hashlib.sha256(label + self.nonce).digest()))


@fault("a hypothesis of which the audit's report says nothing holds")
def silent_hypotheses_hold(m: Any) -> None:
    # All of no cells are as expected: whoever leaves an attack out of the audit, or misspells it in the plan, has its
    # claim confirmed in a signed dossier.
    def outcome(hypothesis: Any, audit: Any) -> str:
        verdicts = [
            cell["verdict"]
            for cell in audit.get("cells", [])
            if (cell["attack"], cell["mode"]) == (hypothesis.attack, hypothesis.mode)
        ]
        wins, nothing = ("recovered", "leaks"), ("no evidence of leakage at this power",)
        holds, fails = (nothing, wins) if hypothesis.expected == "hidden" else (wins, nothing)
        if any(verdict in fails for verdict in verdicts):
            return "fails"
        return "holds" if all(verdict in holds for verdict in verdicts) else "not decided"

    m.setattr("federation.audit_plan._outcome", outcome)


@fault("a model that nearly follows from its totals passes for one that does")
def nearly_equal_models_verify(m: Any) -> None:
    # A tolerance as for any floating-point test: low bits of a model may carry a mark, or be another machine's, and
    # verify and every dossier say equal bit for bit.
    from federation import totals

    original = totals._difference

    def difference(name: str, stored: Any, computed: Any) -> str:
        if computed is not None and computed.shape == stored.shape and np.allclose(stored, computed, rtol=1e-9):
            return ""
        return original(name, stored, computed)

    m.setattr(totals, "_difference", difference)


@fault("what opens a receipt's commitment to the total follows from the server's public key")
def commitments_open_for_everybody(m: Any) -> None:
    # A receipt is given to every client and shown to auditors: whoever has one can then confirm a guess of the total,
    # which the commitment is made not to allow.
    from secagg.primitives.derivation import derive_key

    def opening_of(identity: Any, configuration: bytes) -> bytes:
        return derive_key(identity.public, "opening of a total", configuration)

    m.setattr("secagg.receipts.opening_of", opening_of)
    m.setattr("secagg.receipted_sum.opening_of", opening_of)


@fault("a model that is published without its totals has them in its file")
def published_models_hold_totals(m: Any) -> None:
    # The arrays' names begin otherwise than what is left out: every site of a FedHiP run gets the exact total, takes
    # its own part off, and so may any of the model's readers who knows some rows.
    m.setattr("analytic.model_files.TOTALS", "totals.")
