"""Sums of integer vectors that nobody may see.

What stands here is what programs need; so do the faces `secagg.masked`, `secagg.committee`, `secagg.encryption` and
`secagg.dp`. All other modules are how it is done and may change.
"""

from secagg.beacon import seed_of_beacon
from secagg.committee import CommitteeSum
from secagg.config import new_session_id
from secagg.durable import DurableClient, DurableServer, FileStore, Store
from secagg.entropy import InsecureSeededEntropy, os_entropy
from secagg.errors import (
    ConfigurationError,
    HelperMissingError,
    InvalidVectorError,
    LocalProtocolError,
    MalformedMessageError,
    PolicyError,
    ReceiptError,
    RemoteProtocolError,
    RepeatedMessageError,
    SecureSumError,
    SnapshotError,
    SumOutOfBoundsError,
    TooFewSurvivorsError,
)
from secagg.in_memory import InMemoryRun, InOneProcess, run_in_memory
from secagg.layout import IntVector, Layout, Segment
from secagg.masked import Assumptions, MaskedSum
from secagg.masked.series import MaskedSeries
from secagg.plain import PlainSum
from secagg.policy import ClientPolicy, NoiseDemand
from secagg.primitives.boxes import BoxKey
from secagg.primitives.identity import IdentityKey
from secagg.receipted_sum import ReceiptedSum, SignedBy
from secagg.receipts import Receipt, check_evidence
from secagg.sessions import ClientSession, PartyId, ServerSession, SumResult
from secagg.sums import Guarantee, PartySecrets, SumProtocol

__all__ = [
    "Assumptions",
    "BoxKey",
    "ClientPolicy",
    "ClientSession",
    "CommitteeSum",
    "ConfigurationError",
    "DurableClient",
    "DurableServer",
    "FileStore",
    "Guarantee",
    "HelperMissingError",
    "IdentityKey",
    "InMemoryRun",
    "InOneProcess",
    "InsecureSeededEntropy",
    "IntVector",
    "InvalidVectorError",
    "Layout",
    "LocalProtocolError",
    "MalformedMessageError",
    "MaskedSeries",
    "MaskedSum",
    "NoiseDemand",
    "PartyId",
    "PartySecrets",
    "PlainSum",
    "PolicyError",
    "Receipt",
    "ReceiptError",
    "ReceiptedSum",
    "RemoteProtocolError",
    "RepeatedMessageError",
    "SecureSumError",
    "Segment",
    "ServerSession",
    "SignedBy",
    "SnapshotError",
    "Store",
    "SumOutOfBoundsError",
    "SumProtocol",
    "SumResult",
    "TooFewSurvivorsError",
    "check_evidence",
    "new_session_id",
    "os_entropy",
    "run_in_memory",
    "seed_of_beacon",
]
