"""The Gram of many columns on a graphics card: the same integers as BLAS computes, in less time.

The environment variable ``ANALYTIC_SECAGG_DEVICE`` names a device of PyTorch, such as ``cuda`` or ``cuda:1``. It is
read for each sum of statistics. Nobody but the process's owner chooses, and no other party can tell.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analytic.errors import DeviceError

DEVICE_VARIABLE = "ANALYTIC_SECAGG_DEVICE"
LEAST_WIDTH = 512
"""Columns from which a block of rows is worth its way to the device."""


class DeviceGram:
    """The sum of X^T X of blocks of integers on a device, in float64, whose whole numbers the sums must not leave.

    Args:
        width: columns of X.
        device: as PyTorch names it.

    Raises:
        DeviceError: PyTorch is not installed, or the device is not there or does not multiply float64. So do methods.
    """

    def __init__(self, width: int, device: str) -> None:
        try:
            import torch
        except ImportError as error:
            raise DeviceError(
                f"{DEVICE_VARIABLE}={device} needs PyTorch, which is not installed; install the extra "
                "(pip install '.[vision]'), or unset the variable to multiply on the processor"
            ) from error
        self._torch, self._width, self._device = torch, width, device
        self.clear()

    def add(self, block: NDArray[Any]) -> None:
        """Add X^T X of a block of shape (n, width)."""

        def added() -> None:
            rows = self._torch.tensor(block, device=self._device).to(self._torch.float64)
            self._total.addmm_(rows.T, rows)

        self._try(added)

    def matrix(self) -> NDArray[np.float64]:
        """The sum, all of it, in memory of its own."""
        found: NDArray[np.float64] = self._try(lambda: self._total.to("cpu", copy=True).numpy())
        return found

    def clear(self) -> None:
        """Begin at zero again."""
        shape = self._width, self._width
        self._total: Any = self._try(lambda: self._torch.zeros(shape, dtype=self._torch.float64, device=self._device))

    def _try(self, work: Callable[[], Any]) -> Any:
        try:
            return work()
        except (RuntimeError, TypeError, AssertionError) as error:  # what PyTorch raises, by device and build
            reason = str(error).partition("\n")[0]
            raise DeviceError(
                f"{DEVICE_VARIABLE}={self._device} cannot multiply float64 matrices of {self._width} columns here: "
                f"{reason}. Name another device of PyTorch, or unset the variable to multiply on the processor"
            ) from error


def device_gram(width: int) -> DeviceGram | None:
    """A sum on the device that the environment names; None without one, and for few columns."""
    device = os.environ.get(DEVICE_VARIABLE)
    return DeviceGram(width, device) if device and width >= LEAST_WIDTH else None
