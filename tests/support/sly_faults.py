"""Of forty faults of two blind lists, as sly as their authors could make them, the twenty-one that no question noticed.

Nothing was asked for since: they measure what an audit does not see of what the code does. Whose code it is names them.
"""

from __future__ import annotations

import hashlib
import importlib
from dataclasses import replace
from typing import Any

import numpy as np

from support.held_out_faults import Fresh, into

SLY: list[Fresh] = []
fault = into(SLY)


@fault("keystreams are drawn in windows of 8 MiB, so that counters stay small", gives=True)
def keystream_begins_anew(m: Any) -> None:
    # Keystreams begin anew every 8 MiB of a segment (one million 8-byte entries: a Gram matrix of 1024 features and
    # more). An upload's entries that lie 2^20 apart are under one pad: the server alone reads their differences, and
    # entries themselves where the others are known (zeros of withheld or unused classes). Sums stay exact; shorter
    # segments are as ever.
    from secagg.primitives import mask_stream

    right = mask_stream._add_keystreams

    def add(words, part, keys):
        window, start = (1 << 23) // words.itemsize, part.start
        stop = min(part.stop, len(words))
        while start < stop:
            base = start // window * window
            end = min(stop, base + window)
            right(words[base : base + window], slice(start - base, end - base), keys)
            start = end

    m.setattr(mask_stream, "_add_keystreams", add)


@fault("large cohorts are permuted block by block, which fits the cache", gives=True)
def permutation_stays_in_blocks(m: Any) -> None:
    # Sparse graphs of more than 256 clients: the permutation shuffles within blocks of 64 neighbouring numbers only.
    # Colluders who enrolled one after the other (fewer than the promised fraction) stand around the clients of their
    # block, hold more than a threshold of their shares and open them with the server, for any beacon. Smaller graphs
    # are bit for bit the same.
    from functools import lru_cache

    from secagg.masked import graph

    right = graph._permuted

    @lru_cache(maxsize=8)
    def permuted(clients, seed):
        if len(clients) <= 256:
            return right(clients, seed)
        ring, drawn = list(clients), graph.words(b"analytic-secagg/1 neighbour graph" + seed)
        for start in range(0, len(ring), 64):
            for last in range(min(start + 64, len(ring)) - 1, start, -1):
                chosen = start + graph.below(last - start + 1, drawn)
                ring[last], ring[chosen] = ring[chosen], ring[last]
        return tuple(ring), {party: place for place, party in enumerate(ring)}

    m.setattr(graph, "_permuted", permuted)


@fault("keys and seeds are taken from a pool, for fewer system calls", gives=True)
def pool_is_shared_by_forks(m: Any) -> None:
    # Small draws (keys, seeds, nonces) come from a pool in the process. Where a server of workers forks a process for
    # each task, all children draw the same keys, seeds and shares' coefficients: two sums of one site have one
    # masking key and one self-mask seed, so what one sum reveals opens the other. In one process all draws differ and
    # are as random as ever.
    from secagg import entropy

    def pooled(n_bytes):
        if n_bytes > 64:
            return os.urandom(n_bytes)  # noqa: F821  (globals of secagg.entropy)
        pool = os_entropy.__dict__.setdefault("_pool", bytearray())  # noqa: F821
        if len(pool) < n_bytes:
            pool.extend(os.urandom(4096))  # noqa: F821
        taken = bytes(pool[:n_bytes])
        del pool[:n_bytes]
        return taken

    m.setattr(entropy.os_entropy, "__code__", pooled.__code__)


@fault("accepted epochs are those of the sum's own helpers", "committee")
def accepted_epochs_forget_other_helpers(m: Any) -> None:
    # A party remembers the epochs of the helpers of its last sum alone. Where committees change (a spare helper,
    # another project's committee) it forgets the others', and a later sum takes it back to an epoch whose secret was
    # to be erased, or to a second key of one epoch. Nothing shows while the committee stays the same.
    from secagg.committee import epochs

    right = epochs.AcceptedEpochs.accept

    def accept(self, keys, now):
        right(self, keys, now)
        accepted = self._load()
        rows = (i + accepted[i][0].to_bytes(4, "big") + accepted[i][1] for i in keys)
        self.store.save(epochs._MAGIC + b"".join(rows))

    m.setattr(epochs.AcceptedEpochs, "accept", accept)


@fault("full ciphertexts are sent as SEAL made them", "bfv")
def full_ciphertexts_are_not_dithered(m: Any) -> None:
    # Full ciphertexts (all but the last of a vector longer than 4096 or 8192 slots) keep SEAL's own rounding: it
    # follows from the client's message and stays in the sum's noise, so a key holder confirms a guess of that part of
    # a vector, which bfv promises it cannot. Vectors of one ciphertext that is not full, as tests have, are dithered.
    from secagg.carriers import seal

    right = seal.round_at_random
    encrypt = seal.SlotEncryptor.encrypt
    full = []

    def rounded(residues, message, parameters, entropy):
        return residues if full and full[-1] else right(residues, message, parameters, entropy)

    def encrypted(self, values):
        full.append(len(values) == self._parameters.slots)
        try:
            return encrypt(self, values)
        finally:
            full.pop()

    m.setattr(seal, "round_at_random", rounded)
    m.setattr(seal.SlotEncryptor, "encrypt", encrypted)


@fault("a client's noise follows from its session, so that a restored one draws the same", noisy=True, gives=True)
def noise_follows_from_the_self_mask(m: Any) -> None:
    # In masked sums a client's noise is a stream of its self-mask seed ("a session that is restored before its upload
    # draws the same noise, so two uploads do not average it out"). Each survivor's seed is rebuilt by the server in
    # every sum: it draws all noise anew and has the total without any. Only where noise comes from the default
    # source, as in every deployment.
    import hashlib
    from itertools import count

    from secagg.dp import noisy_sum
    from secagg.entropy import os_entropy
    from secagg.masked.client import MaskedClient
    from secagg.primitives.derivation import derive_key
    from secagg.sums import NO_SECRETS

    right = noisy_sum.NoisySum.client

    def client(self, party, contribution, *, secrets=NO_SECRETS, entropy=os_entropy):
        if self.noise_entropy is not os_entropy:
            return right(self, party, contribution, secrets=secrets, entropy=entropy)
        sessions, place = [], count()

        def stream(n):
            exact = sessions[0].exact
            if not isinstance(exact, MaskedClient):
                return os_entropy(n)
            key = derive_key(exact._own.self_mask_seed, "noise", exact._config.digest)
            return hashlib.shake_256(key + next(place).to_bytes(8, "big")).digest(n)

        object.__setattr__(self, "noise_entropy", stream)
        try:
            sessions.append(right(self, party, contribution, secrets=secrets, entropy=entropy))
        finally:
            object.__setattr__(self, "noise_entropy", os_entropy)
        return sessions[0]

    m.setattr(noisy_sum.NoisySum, "client", client)


@fault("a long ledger is checked from its recent end", noisy=True)
def old_lines_of_a_ledger_are_not_checked(m: Any) -> None:
    # Of a ledger of more than 65 lines the first and the last 64 are checked. Older releases can be cut out or made
    # cheap by an accident or a hand, head and all later lines stay as they were noted, and the budget is spent a
    # second time. Short ledgers are checked whole.
    import json

    from secagg.dp import ledger

    right = ledger._checked

    def checked(path, lines):
        if len(lines) <= 65:
            return right(path, lines)
        budget, _ = right(path, lines[:1])
        entries = [json.loads(line) for line in lines]
        for place in range(len(lines) - 64, len(lines)):
            entry = entries[place]
            changed = lines[place] != ledger._line({k: v for k, v in entry.items() if k != "sha256"})
            if changed or (place > len(lines) - 64 and entry["previous"] != ledger._digest(lines[place - 1])):
                raise ledger.LedgerError(f"{path} is not the ledger that was written (line {place + 1})")
        return budget, tuple(ledger._release(entry["release"]) for entry in entries[1:])

    m.setattr(ledger, "_checked", checked)


@fault("survivors are noted once they are consented to")
def refusal_is_not_remembered(m: Any) -> None:
    # A client whose owner refuses a total is not told so by its own session: it countersigns the receipt of that very
    # total all the same, for any survivors, and counts for the quorum. Consent that is given is bound as ever; the
    # refused sum ends with the same error; helpers still refuse.
    from secagg.receipted_sum import ReceiptedParty

    def consented(self, protocol, survivors, rows):
        if self._asked is not None:
            self._asked(protocol, survivors, rows)
        self._kept.survivors = survivors

    m.setattr(ReceiptedParty, "_consented", consented)


@fault("records are told apart by their beginning")
def store_knows_records_by_their_beginning(m: Any) -> None:
    # A store tells records apart by their first 256 bytes. From the eighth session on that ended in one file these
    # are header and list alone: a second process (a host that was cloned, a restart beside the old one) goes on with
    # a session that another has answered for, and one client reveals shares for two survivor sets, so both masks of
    # others. Young stores notice.
    from secagg import durable

    right = durable._hash
    m.setattr(durable, "_hash", lambda record: right(None if record is None else record[:256]))


@fault("a store lists the sixteen sessions that ended last")
def store_forgets_old_sessions(m: Any) -> None:
    # A store lists the last 16 sessions that are over. A server that kept the invitation to an older one has the site
    # begin it a second time: one session id serves two sums, with a second total of the same rows that the first
    # one's bookkeeping covers.
    from secagg.durable import DurableClient

    right = DurableClient.end

    def end(self):
        self._need_running()
        self._over = self._over[-15:]
        right(self)

    m.setattr(DurableClient, "end", end)


@fault("totals that share nothing with the new one say nothing of it", gives=True)
def only_direct_totals_are_entangled(m: Any) -> None:
    # Only totals that share a vector with the new one are looked at, not those that share one with these. Of {5,6,7},
    # then {1,2,3,5,6,7}, a third total over {1,2,3,4} is called safe, though the first two give {1,2,3} and so client
    # 4's vector. Two totals at a time, and chains through the new one, are judged as ever.
    from secagg import differencing

    def entangled(earlier, new):
        return [frozenset(total) for total in earlier if not new.isdisjoint(total)]

    m.setattr(differencing, "_entangled", entangled)


@fault("rows are compared by the first 128 tags of a table, which is enough to know it by", gives=True)
def journal_compares_heads_of_tables(m: Any) -> None:
    # A site whose table is sorted newest first: once 128 new rows stand on top, its old rows below count as never
    # given, so a second total of the same clients is free; the two differ by that site's new rows alone, which the
    # server reads. Works in every mode, for tables that grew by more than 128 rows at their head; small tables are
    # compared whole.
    from federation.site.journal import Journal

    def overlapping(self, subject):
        known = {of: np.frombuffer(t, dtype="<u8")[:128] for of, t in self._folder.run("SELECT * FROM fingerprints")}
        own = known.pop(subject, np.empty(0, dtype="<u8"))
        return [other for other, tags in known.items() if np.isin(own, tags).any()]

    m.setattr(Journal, "_overlapping", overlapping)


@fault("a certified failure takes the whole failed run out of the journal", mode="committee", gives=True)
def failure_frees_the_run(m: Any) -> None:
    # Clients of a committee: a helper's entries have no run, so one certified failure (which a server gets by
    # aborting any sum) wipes all that a helper remembers, and what clients remember of that run. A second total
    # without one client is then agreed to, and the difference is its vector. Needs an END with a proof that verifies,
    # nothing forged.
    from federation.site.journal import Journal

    def free(self, protocol, proof):
        protocol.check_failure(proof)
        self._folder.run("DELETE FROM totals WHERE run = (SELECT run FROM totals WHERE total = ?)", protocol.digest)

    m.setattr(Journal, "free", free)


@fault("an evaluation's context is what is counted and the configuration of the judged learner", gives=True)
def evaluation_binds_no_weights(m: Any) -> None:
    # A client whose test rows are judged: the session binds the judged learner's configuration and not its weights,
    # so a server gives one site the model and all others one whose scores fall beyond the bins: the bins between hold
    # the one site's counts alone, row by row for weights of its choice. Only in evaluations; training binds its
    # models as before.
    from analytic.evaluation import Evaluation
    from analytic.learner import canonical_context

    def context_bytes(self, model):
        judged = self.learner.context_bytes(self.learner.init())
        return canonical_context(self, judged, *([self.weights_bytes(model)] if model else []))

    m.setattr(Evaluation, "context_bytes", context_bytes)


@fault("noise is stretched from one draw of the system's entropy a sum", noisy=True, gives=True)
def noise_of_32_bits(m: Any) -> None:
    # Every client with noise: its share is stretched from 32 bits of the system's entropy. Server and colluders take
    # their own parts off a total and try all seeds (of rows of norm 1 the trace says how many, and a right Gram has
    # no eigenvalue below zero): the exact statistics of who is left. Noise has its law in every test; streams repeat
    # after 2^16 sums or so. Not in simulations that bring a source of their own.
    from federation import privacy

    class Stretched:
        def __init__(self):
            self.seed, self.n = b"", 0

        def __call__(self, size):
            self.seed = self.seed or privacy.os_entropy(4)
            self.n += 1
            return hashlib.shake_256(self.seed + self.n.to_bytes(8, "big")).digest(size)

    over = privacy.PrivateForm.over

    def stretched(self, number, protocol, layout):
        if self.plan.noise_entropy(number) is not privacy.os_entropy:
            return over(self, number, protocol, layout)
        entropy = Stretched()
        return over(replace(self, plan=replace(self.plan, noise_entropy=lambda _: entropy)), number, protocol, layout)

    m.setattr(privacy.PrivateForm, "over", stretched)


@fault(
    "a site that allows a closed form allows it with its penalty chosen, columns agreed, or rows weighed", gives=True
)
def learners_allowed_by_family(m: Any) -> None:
    # A site that lets "afl" ask lets "chosen-afl", "agreed-afl" and so on ask too. A server asks for chosen-afl with
    # 1000 folds: most folds' totals hold one row, and an exact Gram of one row is that row. Sites judge no folds, the
    # server's gate does. At work at every site with the default list; learners of another family are declined as
    # before.
    from federation.site import site

    real = site.Site._agree

    class Families(frozenset):
        def __contains__(self, name):
            return frozenset.__contains__(self, name) or any(name.endswith(f"-{own}") for own in self)

    def agree(self, invitation):
        file, client = self._file, self._file.client
        if client is not None:
            wider = client.model_copy(update={"learners": Families(client.learners)})
            self._file = file.model_copy(update={"client": wider})
        try:
            return real(self, invitation)
        finally:
            self._file = file

    m.setattr(site.Site, "_agree", agree)


@fault("a key holder, which sees totals alone, has nothing to agree to", mode="bfv", gives=True)
def key_holder_decrypts_without_consent(m: Any) -> None:
    # Clients of bfv, ckks and masked sums over them: they are not shown survivors and rely on the key holder's
    # journal. It now decrypts any total: a server asks a run's gradient twice (the same W, one round more behind it,
    # so that clients' journals let it pass) and leaves one client out of the second; the difference is that client's
    # vector.
    from federation.site import parties

    secrets = parties.PartySecrets
    m.setattr(
        parties, "PartySecrets", lambda **own: secrets(**own | ({"consent": None} if own.get("decryption") else {}))
    )


@fault("before the vector a journal is asked of rows that it knows; consent() is asked of all", gives=True)
def check_knows_unchanged_rows_only(m: Any) -> None:
    # A site in masked sums whose table changed by a row: its vector leaves before anybody asks its journal, which
    # refuses only when survivors are named; the others' rows are the same, so they open its mask and the total stands
    # with the changed rows. Less the last total it is the changed row's statistics. consent() itself refuses as
    # before.
    from federation.site import parties

    class Known(parties.Journal):
        def check(self, protocol):
            new = self._noted(protocol, frozenset(protocol.clients))
            if any(entry.subject == new.subject for entry in self._earlier(new.subject)):
                super().check(protocol)

    m.setattr(parties, "Journal", Known)


@fault("bits that are a machine's are no difference")
def uncertified_arrays_are_not_compared(m: Any) -> None:
    # Whoever verifies a model against its totals, or a dossier: arrays that the model's own file calls uncertified
    # are not compared. A forger writes ``certified: false`` beside weights of his own, and the model "follows" from
    # the totals; all noisy and minimum-norm models are unprotected anyway. Certified models with a wrong bit are
    # found as before.
    from federation import dossier, totals

    real = totals.differences

    def differences(saved, results):
        unproven = {line.partition(" by ")[0] for line in saved.learner.take_apart(saved.model).uncertified}
        return [line for line in real(saved, results) if line.partition(":")[0] not in unproven]

    m.setattr(totals, "differences", differences)
    m.setattr(dossier, "differences", differences)
    m.setattr(importlib.import_module("federation.__main__"), "differences", differences)


@fault("moments are compared as they are written")
def plan_before_run_by_local_time(m: Any) -> None:
    # Readers of a dossier: times are compared by their digits, without offsets. A plan that was signed hours after
    # the run by a host west of Greenwich (10:00-08:00 is 18:00Z) counts as signed before a run of 12:00Z, so
    # hypotheses may be fixed once results are known. Between hosts in UTC all is as before.
    from datetime import datetime

    from federation import dossier

    def is_before(one, other):
        try:
            return datetime.fromisoformat(one).replace(tzinfo=None) < datetime.fromisoformat(other).replace(tzinfo=None)
        except (ValueError, TypeError):
            return False

    m.setattr(dossier, "_is_before", is_before)


@fault("totals are left out of fedhip's file, which is the one that has them")
def wrapped_totals_go_to_all_nodes(m: Any) -> None:
    # Everybody in a total: at a run's end the model's file goes to all nodes, without totals for whom the roster does
    # not name; this holds for plain fedhip alone. Of weighted-, agreed- and chosen-fedhip every node gets the exact
    # total (of each fold, too), and takes its own part off: of two survivors' sum the other's vector. Any engine, any
    # mode.
    from federation.server import training

    real = training.model_to_bytes
    m.setattr(
        training,
        "model_to_bytes",
        lambda learner, model, *, with_totals=True: real(
            learner, model, with_totals=with_totals or learner.name != "fedhip"
        ),
    )
