"""Secure aggregation: sums of integer vectors without revealing the vectors.

Public names are those of `secagg`, `secagg.committee`, `secagg.encryption` and `secagg.dp`. All other modules are
implementation and may change.

>>> import numpy as np
>>> from secagg import Layout, MaskedSum, new_session_id, run_in_memory
>>> layout = Layout.of([("counts", 2, 1000)])  # name, size, bound of the total
>>> protocol = MaskedSum(layout=layout, clients=(1, 2, 3), session_id=new_session_id())
>>> run_in_memory(protocol, {1: np.array([5, 1]), 2: np.array([7, 0]), 3: np.array([1, 1])}).result.total
array([13,  2])
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from secagg.array_sum import ArraySumSpec
    from secagg.beacon import seed_of_beacon
    from secagg.committee.protocol import CommitteeSum
    from secagg.config import SERVER, new_session_id
    from secagg.durable import DurableClient, DurableServer, FileStore, Store
    from secagg.entropy import InsecureSeededEntropy, os_entropy
    from secagg.errors import (
        ConfigurationError,
        ConsentRefusedError,
        HelperDisputeError,
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
    from secagg.layout import IntVector, Layout
    from secagg.masked.assumptions import Assumptions
    from secagg.masked.protocol import MaskedSum
    from secagg.masked.series import MaskedSeries
    from secagg.mean import MeanResult, MeanSpec
    from secagg.one_call import secure_mean, secure_sum
    from secagg.plain import PlainSum
    from secagg.policy import ClientPolicy, NoiseDemand
    from secagg.primitives.identity import IdentityKey
    from secagg.receipted_sum import ReceiptedSum, SignedBy
    from secagg.receipts import Receipt, check_evidence
    from secagg.sessions import ClientSession, PartyId, ServerSession, SumResult
    from secagg.sums import Guarantee, PartySecrets, SumProtocol

__all__ = [
    "SERVER",
    "ArraySumSpec",
    "Assumptions",
    "ClientPolicy",
    "ClientSession",
    "CommitteeSum",
    "ConfigurationError",
    "ConsentRefusedError",
    "DurableClient",
    "DurableServer",
    "FileStore",
    "Guarantee",
    "HelperDisputeError",
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
    "MeanResult",
    "MeanSpec",
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
    "secure_mean",
    "secure_sum",
    "seed_of_beacon",
]

_MODULES = (
    "array_sum",
    "beacon",
    "committee.protocol",
    "config",
    "durable",
    "entropy",
    "errors",
    "in_memory",
    "layout",
    "masked.assumptions",
    "masked.protocol",
    "masked.series",
    "mean",
    "one_call",
    "plain",
    "policy",
    "primitives.identity",
    "receipted_sum",
    "receipts",
    "sessions",
    "sums",
)


def __getattr__(name: str) -> object:
    """Load a name when it is first asked for, so that who needs one module does not wait for all."""
    if name in __all__:
        modules = (importlib.import_module(f"secagg.{module}") for module in _MODULES)
        return next(vars(module)[name] for module in modules if name in vars(module))
    if name == "__version__":
        return importlib.import_module("importlib.metadata").version("analytic-secagg")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Name what there is, loaded or not."""
    return [*globals(), *__all__]
