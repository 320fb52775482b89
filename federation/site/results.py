"""What a site keeps of finished runs: its receipts, the model, and the totals where the roster lets it have them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from federation.console.output_files import OutputFile
from federation.site.errors import SiteFileError
from secagg import Receipt

NAME_DIGITS = 16


@dataclass(frozen=True, slots=True)
class Results:
    """A folder of results, each named by what it is of.

    Args:
        folder: it is made where it is missing; only its owner enters it.
    """

    folder: Path

    def keep_receipt(self, content: bytes) -> None:
        """Keep a receipt under the digest of its sum; ``python -m federation verify`` reads it.

        Raises:
            SiteFileError, OutputError: the folder cannot be written to.
        """
        self._keep(f"{Receipt.from_bytes(content).statement.configuration.hex()[:NAME_DIGITS]}.receipt", content)

    def _keep(self, name: str, content: bytes) -> None:
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise SiteFileError(
                f"cannot keep results in {self.folder}: {error.strerror}; name another folder"
            ) from error
        OutputFile(self.folder / name).fill(lambda file: file.write(content))
