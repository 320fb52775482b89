"""Learners and privacy modes put together, for who deploys them."""

from federation.federation import Federation, Step, SumRecord
from federation.in_process import FederatedRun, federate, run_federation
from federation.privacy import PrivacyPlan, PrivateForm
from federation.release import Concern, Gate, ReleasePolicy, ReleaseRefusedError

__all__ = [
    "Concern",
    "FederatedRun",
    "Federation",
    "Gate",
    "PrivacyPlan",
    "PrivateForm",
    "ReleasePolicy",
    "ReleaseRefusedError",
    "Step",
    "SumRecord",
    "federate",
    "run_federation",
]
