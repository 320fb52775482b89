"""The client of a committee sum: it sends one message.

A client session is created by ``CommitteeSum.client``. Its only call is ``start()``, which returns COMMITTEE_INPUT: the
vector, masked with a fresh seed for each set of helpers; the seeds, encrypted to each helper of their set; commitments
to all seeds; and, with identities, a signature on them. The client receives nothing and may go offline.

>>> import numpy as np
>>> from secagg import CommitteeSum, Layout, new_session_id
>>> layout = Layout.of([("counts", 2, 100)])
>>> parties = CommitteeSum.generate(layout=layout, clients=(1, 2, 3), session_id=new_session_id(), n_helpers=2)
>>> upload = parties.client(1, np.array([3, 4])).start()  # send it to the server
"""

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
from secagg.errors import ConfigurationError
from secagg.one_shot import OneShotClient
from secagg.primitives.boxes import seal_box
from secagg.primitives.mask_stream import masked_pieces
from secagg.sessions import PartyId
from secagg.sums import FINGERPRINT_BYTES
from secagg.wire import MessageType

if TYPE_CHECKING:
    from secagg.committee.protocol import CommitteeSum


class CommitteeClient(OneShotClient):
    """A one-shot client of a committee sum; see the module docstring."""

    _config: CommitteeSum

    def start(self) -> bytes:
        """Return the message with the masked vector and the encrypted seeds; the seeds are erased."""
        config, digest, vector = self._config, self._config.digest, self._vector()
        rows = bytes(FINGERPRINT_BYTES) if self._rows is None else self._rows()
        if len(rows) != FINGERPRINT_BYTES:
            raise ConfigurationError(f"a fingerprint of rows has {FINGERPRINT_BYTES} bytes, not {len(rows)}")
        self._ask_consent(None)
        self._mark_sent()
        seeds = [self._entropy(SEED_BYTES) for _ in config.seed_sharing.sets]
        masks = [(mask_seed(digest, self.party, i, seed), 1) for i, seed in enumerate(seeds)]
        message = CommitteeInput(
            boxes={helper: self._box(helper, seeds, rows) for helper in config.helpers},
            commitments=b"".join(seed_commitment(digest, self.party, i, seed) for i, seed in enumerate(seeds)),
            signature=b"",
            vector=b"",
        )
        return self._seal_message(
            MessageType.COMMITTEE_INPUT,
            self._signed(message).to_payload(),
            vector=masked_pieces(config.layout, vector, masks, digest),
        )

    def _box(self, helper: PartyId, seeds: list[bytes], rows: bytes) -> bytes:
        own = b"".join(seeds[place] for place in self._config.seed_sharing.sets_of(helper)) + rows
        binding = box_binding(self._config.digest, self.party, helper)
        return seal_box(self._config.helper_key(helper), own, BOX_LABEL, binding)

    def _signed(self, message: CommitteeInput) -> CommitteeInput:
        if self._identity is None:
            return message
        entry = message.entry(self._config.helpers[0])
        signed = (self._config.digest, number(self.party), entry.commitments, entry.box_hashes)
        return replace(message, signature=self._identity.sign(SEEDS_LABEL, *signed))
