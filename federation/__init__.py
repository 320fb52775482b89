"""Learners and privacy modes put together, for who deploys them."""

from federation.federation import Federation, Step, SumRecord
from federation.in_process import FederatedRun, federate, run_federation

__all__ = ["FederatedRun", "Federation", "Step", "SumRecord", "federate", "run_federation"]
