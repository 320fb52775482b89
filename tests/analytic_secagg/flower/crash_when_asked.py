"""A site's loader that pulls the plug on its own host: it kills the SuperNode it runs under, and itself."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np


def load() -> tuple[Any, Any]:
    """The rows, unless the test has armed this site; then nothing on this host answers any more."""
    if Path(os.environ["CRASH_WHEN"]).exists():
        os.killpg(os.getpgid(0), signal.SIGKILL)
    with np.load(os.environ["CRASH_ROWS"]) as archive:
        return archive["x_train"], archive["y_train"]
