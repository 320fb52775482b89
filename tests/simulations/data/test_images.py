"""Image files as a backbone reads them: eight bits a channel, and refused where there are more."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from analytic_secagg.errors import DataError
from simulations.data.extractors import Looks, read_image


@pytest.mark.parametrize("dtype", [np.uint16, np.int32, np.float32])
def test_images_of_more_than_eight_bits_are_refused(dtype: type, tmp_path: Path) -> None:
    """Pillow's conversion to RGB cuts off at 255: twelve X-rays became twelve times the same white image."""
    file = tmp_path / ("image.png" if dtype is np.uint16 else "image.tiff")
    Image.fromarray((np.arange(64).reshape(8, 8) * 500).astype(dtype)).save(file)
    with pytest.raises(DataError, match=r"more than 8 bits a pixel .*choose a window of values"):
        read_image(file)


def png(width: int, height: int, depth: int, color: int, pixels: bytes) -> bytes:
    """A PNG file (RFC 2083), since Pillow writes none of 16 bits a channel in color."""
    line = len(pixels) // height
    content = b"".join(b"\0" + pixels[start : start + line] for start in range(0, len(pixels), line))
    parts = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, 0)),
        (b"IDAT", zlib.compress(content)),
    )
    chunks = b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in (*parts, (b"IEND", b""))
    )
    return b"\x89PNG\r\n\x1a\n" + chunks


@pytest.mark.parametrize(("color", "channels"), [(2, 3), (4, 2), (6, 4)])
def test_images_of_sixteen_bits_a_channel_are_refused_in_color_too(color: int, channels: int, tmp_path: Path) -> None:
    """Pillow keeps the upper 8 bits of each: of values of 12 bits that is almost black, without a word."""
    pixels = (np.arange(64 * channels, dtype=">u2") * 16).tobytes()
    (tmp_path / "deep.png").write_bytes(png(8, 8, 16, color, pixels))
    with Image.open(tmp_path / "deep.png") as image:
        assert image.mode in ("RGB", "LA", "RGBA")
    with pytest.raises(DataError, match="more than 8 bits a pixel"):
        read_image(tmp_path / "deep.png")
    (tmp_path / "flat.png").write_bytes(png(8, 8, 8, color, bytes(range(64 * channels))[: 64 * channels]))
    assert np.asarray(read_image(tmp_path / "flat.png")).shape == (8, 8, 3)


def test_blank_and_clipped_images_are_seen(tmp_path: Path) -> None:
    rising, looks = np.arange(256, dtype=np.uint8).reshape(16, 16), Looks()
    for name, pixels in {
        "as-it-is": rising,
        "clipped": np.clip(rising.astype(int) * 4, 0, 255).astype(np.uint8),
        "white": np.full((16, 16), 255, np.uint8),
        "dark": np.where(rising < 200, 0, rising).astype(np.uint8),
    }.items():
        Image.fromarray(pixels).save(tmp_path / f"{name}.png")
        read_image(tmp_path / f"{name}.png", looks)
    assert [path.stem for path in looks.blank] == ["white"]
    assert [path.stem for path in looks.clipped] == ["clipped"]
    said = list(looks.said())
    assert said[0] == "images read: 4 L; each becomes RGB with 8 bits a channel"
    assert [sentence.partition(" images are ")[2].partition(",")[0] for sentence in said[1:]] == [
        "of one color",
        "more than half white",
    ]


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA", "P", "1"])
def test_images_of_eight_bits_are_read_as_rgb(mode: str, tmp_path: Path) -> None:
    grey = Image.fromarray((np.arange(64).reshape(8, 8) * 4).astype(np.uint8))
    grey.convert(mode).save(tmp_path / "image.png")
    found = np.asarray(read_image(tmp_path / "image.png"))
    assert found.shape == (8, 8, 3)
    if mode != "1":
        assert np.array_equal(found[:, :, 0], np.asarray(grey))
