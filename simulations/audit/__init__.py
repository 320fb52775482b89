"""What could be learnt from what clients send; below is what an attack of one's own needs (docs/how-to/extend.md)."""

from simulations.audit.attack import Attack, ExposureAttack, Limit, Unit
from simulations.audit.evaluate import Score
from simulations.audit.exposure import Exposure, Kind
from simulations.audit.knowledge import Knowledge, Known
from simulations.audit.population import Truth

__all__ = ["Attack", "Exposure", "ExposureAttack", "Kind", "Knowledge", "Known", "Limit", "Score", "Truth", "Unit"]
