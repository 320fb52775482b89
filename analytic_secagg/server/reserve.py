"""Space for a run's results, taken before any site is asked: a full disk is found while it costs nobody anything."""

from __future__ import annotations

import os
from pathlib import Path

from analytic_secagg.errors import OutputError

_COPIES = 4
"""What a run leaves of a total, in its sizes: the total, a model with the total in full, and one of them once more
while it is written."""

_MARGIN_BYTES = 1 << 20
"""Of the summary, the invitation and the log."""

_BLOCK = bytes(1 << 20)


class Reserve:
    """A file that holds space in a run's folder until the results take its place.

    Args:
        folder: of the run; it exists.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / ".reserved"
        self._n_entries = 0

    def hold(self, n_entries: int) -> None:
        """Take space for the total of one more sum, beside those before, and for the model.

        Args:
            n_entries: of the sum's vector, 8 bytes each.

        Raises:
            OutputError: there is none. Nobody has been asked for anything of this sum.
        """
        self._n_entries += n_entries
        needed = _COPIES * 8 * self._n_entries + _MARGIN_BYTES
        try:
            with open(self._path, "ab", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
                while (n_missing := needed - file.tell()) > 0:
                    file.write(_BLOCK[:n_missing])
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            self.release()
            raise OutputError(
                f"{needed} bytes must be free in {self._path.parent} for the totals and the model of this run, and are "
                f"not: {error.strerror or error}; free space and run again. No site was asked for its next vector"
            ) from error

    def release(self) -> None:
        """Give the space back, for the results or after a failure."""
        self._path.unlink(missing_ok=True)
