"""Line charts of an audit as inline SVG, and rows as small PNG pictures."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, sqrt

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from simulations.report.svg import COLOURS, MARKERS, MUTED, to_svg


@dataclass(frozen=True, slots=True, kw_only=True)
class LineChart:
    """Lines over one logarithmic axis, told apart by colour and marker, with everything they show in words.

    Args:
        title: one line.
        x_label: what the horizontal axis is.
        y_label: what the vertical axis is.
        series: points by name.
        diagonal: whether to draw what a guess would give in a ROC plot.
        words: what the chart says, for readers who do not see it.
    """

    title: str
    x_label: str
    y_label: str
    series: Mapping[str, tuple[Sequence[float], Sequence[float]]]
    words: str
    diagonal: bool = False

    @property
    def alt(self) -> str:
        """Title and words."""
        return f"Line chart. {self.title}. {self.words}"

    def to_svg(self) -> str:
        """An ``svg`` element for the inside of a page, with its description."""
        return to_svg(self._draw, inches=(7.2, 3.6), salt=self.title, alt=self.alt)

    def _draw(self, figure: Figure) -> None:
        axes = figure.add_subplot()
        for number, (name, (x, y)) in enumerate(self.series.items()):
            style = "" if self.diagonal else MARKERS[number % len(MARKERS)]
            axes.plot(
                x, y, label=name, color=COLOURS[number % len(COLOURS)], marker=style, drawstyle=self._drawstyle,
                linestyle=("-", "--", ":", "-.")[number % 4],
            )  # fmt: skip
        if self.diagonal:
            line = np.geomspace(1e-4, 1, 50)
            axes.plot(line, line, color=MUTED, linewidth=0.8, label="guessing")
        axes.set_xscale("log")
        axes.set_ylim(-0.03, 1.05)
        axes.set_xlabel(self.x_label)
        axes.set_ylabel(self.y_label)
        axes.grid(visible=True)
        figure.legend(loc="outside right upper", fontsize=8)

    @property
    def _drawstyle(self) -> str:
        return "steps-post" if self.diagonal else "default"


def row_picture(row: NDArray[np.int64], largest: int) -> str:
    """A row as a square grey picture in a data URI: dark is large; a row of no square length is padded with white."""
    side = ceil(sqrt(len(row)))
    shades = np.full(side * side, 255, dtype=np.uint8)
    part = np.clip(np.abs(row.astype(np.float64)) / max(1, largest), 0.0, 1.0)
    shades[: len(row)] = 255 - np.round(255 * part).astype(np.uint8)
    return "data:image/png;base64," + base64.b64encode(_png(shades.reshape(side, side))).decode("ascii")


def _png(shades: NDArray[np.uint8]) -> bytes:
    """A greyscale PNG (RFC 2083) of 8 bits."""
    height, width = shades.shape
    lines = b"".join(b"\0" + line.tobytes() for line in shades)
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    chunks = ((b"IHDR", head), (b"IDAT", zlib.compress(lines)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in chunks
    )
