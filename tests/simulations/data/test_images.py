"""Image files as a backbone reads them: eight bits a channel, and refused where there are more."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from analytic_secagg.errors import DataError
from simulations.data.extractors import read_image


@pytest.mark.parametrize("dtype", [np.uint16, np.int32, np.float32])
def test_images_of_more_than_eight_bits_are_refused(dtype: type, tmp_path: Path) -> None:
    """Pillow's conversion to RGB cuts off at 255: twelve X-rays became twelve times the same white image."""
    file = tmp_path / ("image.png" if dtype is np.uint16 else "image.tiff")
    Image.fromarray((np.arange(64).reshape(8, 8) * 500).astype(dtype)).save(file)
    with pytest.raises(DataError, match=r"more than 8 bits a pixel .*choose a window of values"):
        read_image(file)


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA", "P", "1"])
def test_images_of_eight_bits_are_read_as_rgb(mode: str, tmp_path: Path) -> None:
    grey = Image.fromarray((np.arange(64).reshape(8, 8) * 4).astype(np.uint8))
    grey.convert(mode).save(tmp_path / "image.png")
    found = np.asarray(read_image(tmp_path / "image.png"))
    assert found.shape == (8, 8, 3)
    if mode != "1":
        assert np.array_equal(found[:, :, 0], np.asarray(grey))
