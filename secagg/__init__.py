"""Sums of integer vectors that nobody may see."""

from secagg.committee import CommitteeSum
from secagg.config import new_session_id
from secagg.entropy import InsecureSeededEntropy, os_entropy
from secagg.in_memory import InMemoryRun, InOneProcess, run_in_memory
from secagg.layout import IntVector, Layout, Segment
from secagg.masked import Assumptions, MaskedSum
from secagg.plain import PlainSum
from secagg.sessions import ClientSession, PartyId, ServerSession, SumResult
from secagg.sums import Guarantee, PartySecrets, SumProtocol

__all__ = [
    "Assumptions",
    "ClientSession",
    "CommitteeSum",
    "Guarantee",
    "InMemoryRun",
    "InOneProcess",
    "InsecureSeededEntropy",
    "IntVector",
    "Layout",
    "MaskedSum",
    "PartyId",
    "PartySecrets",
    "PlainSum",
    "Segment",
    "ServerSession",
    "SumProtocol",
    "SumResult",
    "new_session_id",
    "os_entropy",
    "run_in_memory",
]
