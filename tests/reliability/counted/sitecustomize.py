"""Python reads this when it starts, where this folder is on its path: an engine's server counts its steps, and dies."""

import os
from pathlib import Path

if folder := os.environ.get("COUNT_STEPS_OF"):
    from reliability.stepping import count_server_steps

    count_server_steps(Path(folder))
