"""Learners under privacy modes, in one process and in deployments."""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from analytic_secagg.changes import Change, ChangeRefusedError, changed, with_classes
    from analytic_secagg.federated_model import FederatedModel, federate
    from analytic_secagg.federation import Federation, Step
    from analytic_secagg.in_process import FederatedRun, run_federation
    from analytic_secagg.privacy import PrivacyPlan
    from analytic_secagg.release import Gate, ReleasePolicy, ReleaseRefusedError

__all__ = [
    "Change",
    "ChangeRefusedError",
    "FederatedModel",
    "FederatedRun",
    "Federation",
    "Gate",
    "PrivacyPlan",
    "ReleasePolicy",
    "ReleaseRefusedError",
    "Step",
    "changed",
    "federate",
    "run_federation",
    "with_classes",
]

_MODULES = tuple(
    f"analytic_secagg.{name}"
    for name in ("changes", "federated_model", "federation", "in_process", "privacy", "release")
)


def __getattr__(name: str) -> object:
    """Load a name when it is first asked for: the commands stand in this package, and must heed Ctrl-C before numpy."""
    if name in __all__:
        return next(vars(module)[name] for module in map(importlib.import_module, _MODULES) if name in vars(module))
    if name == "__version__":
        return importlib.import_module("importlib.metadata").version("analytic-secagg")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Name what there is, loaded or not."""
    return [*globals(), *__all__]
