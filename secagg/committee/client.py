"""A client of a committee sum: it speaks once."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from secagg.committee.messages import (
    BOX_LABEL,
    SEED_BYTES,
    SEEDS_LABEL,
    CommitteeInput,
    box_binding,
    mask_seed,
    number,
    seed_commitment,
)
from secagg.config import SERVER
from secagg.contribution import check_now, resolve
from secagg.entropy import Entropy
from secagg.errors import ConfigurationError, LocalProtocolError, RemoteProtocolError
from secagg.party import Party
from secagg.primitives.boxes import seal_box
from secagg.primitives.mask_stream import add_masks
from secagg.ring import RingVector
from secagg.sessions import Contribution, PartyId
from secagg.snapshots import CLIENT, SpeaksOnce, Spoken, binding
from secagg.sums import ROWS_BYTES, PartySecrets
from secagg.wire import MessageType

if TYPE_CHECKING:
    from secagg.committee.protocol import CommitteeSum


class CommitteeClient(Party, SpeaksOnce):
    """Masks its vector with a fresh seed for each set of helpers and seals each helper the seeds of its sets."""

    _config: CommitteeSum

    def __init__(
        self,
        config: CommitteeSum,
        party: PartyId,
        contribution: Contribution,
        *,
        secrets: PartySecrets,
        entropy: Entropy,
    ) -> None:
        config.index(party)
        check_now(config.layout, contribution)
        Party.__init__(self, config, party, secrets)
        self._entropy = entropy
        self._contribution, self._rows = contribution, secrets.rows
        self._kept = Spoken()

    @property
    def bound_to(self) -> bytes:
        """What ties a stored session to this one."""
        return binding(CLIENT, self._config.digest, self.party)

    def start(self) -> bytes:
        """Its one message. The seeds are forgotten with it."""
        if self._kept.has_spoken or self._contribution is None:
            raise LocalProtocolError("this client has sent its vector; one session sends one vector, once")
        config, digest = self._config, self._config.digest
        vector = RingVector.encode(config.layout, resolve(config.layout, self._contribution))
        rows = bytes(ROWS_BYTES) if self._rows is None else self._rows()
        if len(rows) != ROWS_BYTES:
            raise ConfigurationError(f"a fingerprint of rows has {ROWS_BYTES} bytes, not {len(rows)}")
        self._agree(None)
        self._kept.has_spoken, self._contribution = True, None
        seeds = [self._entropy(SEED_BYTES) for _ in config.replication.sets]
        add_masks(vector, [(mask_seed(digest, self.party, i, seed), 1) for i, seed in enumerate(seeds)], digest)
        message = CommitteeInput(
            boxes={helper: self._box(helper, seeds, rows) for helper in config.helpers},
            commitments=b"".join(seed_commitment(digest, self.party, i, seed) for i, seed in enumerate(seeds)),
            signature=b"",
            vector=b"",
        )
        return self._say(MessageType.COMMITTEE_INPUT, self._signed(message).to_payload(), vector=vector.parts())

    def receive(self, message: bytes) -> bytes | None:
        """Refuse everything: a client of a committee is asked nothing."""
        raise RemoteProtocolError("in a committee sum the server asks clients nothing", peer=SERVER)

    def _box(self, helper: PartyId, seeds: list[bytes], rows: bytes) -> bytes:
        own = b"".join(seeds[place] for place in self._config.replication.held_by(helper)) + rows
        binding = box_binding(self._config.digest, self.party, helper)
        return seal_box(self._config.helper_key(helper), own, BOX_LABEL, binding)

    def _signed(self, message: CommitteeInput) -> CommitteeInput:
        if self._identity is None:
            return message
        entry = message.entry(self._config.helpers[0])
        said = (self._config.digest, number(self.party), entry.commitments, entry.box_hashes)
        return replace(message, signature=self._identity.sign(SEEDS_LABEL, *said))
