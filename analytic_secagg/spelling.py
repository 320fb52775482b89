"""Spellings of one text: white space never makes a class, and a value written in two ways is one value."""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Iterable
from decimal import Decimal

_PLAIN = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)")
_FORMULA = re.compile(r'="(.*)"')
_GUARDED = re.compile(r"'(?=[-+=@])")


def tidy(text: str) -> str:
    r"""Return a text as it is meant, without what its file or spreadsheet added.

    White space at its ends goes, inside it becomes one blank (no-break spaces are white space), and signs that nobody
    sees go; letters are in their composed form; the minus sign of typesetters is a minus. A spreadsheet's ``="007"`` is
    007, and the apostrophe that protects ``'-5`` from being a formula goes.

    Example:
        >>> tidy(" not\u00a0known ")
        'not known'
    """
    if not text.isascii():
        text = unicodedata.normalize("NFC", text).translate({0x2212: "-"})
    text = " ".join(text.split())
    if not text.isprintable():
        text = "".join(sign for sign in text if unicodedata.category(sign) not in ("Cc", "Cf"))
    if text[:1] == "=" and (formula := _FORMULA.fullmatch(text)):
        return tidy(formula[1])
    return _GUARDED.sub("", text, count=1) if text[:1] == "'" else text


def loose(text: str) -> str:
    """Return what a tidy text has in common with its other spellings: small and capital letters, 1 and 1.0 and 01.

    Example:
        >>> loose("Male") == loose("male"), loose("1.0") == loose("1")
        (True, True)
    """
    if _PLAIN.fullmatch(text):
        return format(Decimal(text).normalize(), "f")
    return text.casefold()


def nearest(word: str, known: Iterable[str]) -> str:
    """``: did you mean ...?`` for the known word that looks most like this one; nothing where none does."""
    by_folded = {name.casefold(): name for name in known}
    found = difflib.get_close_matches(word.casefold(), by_folded, n=1, cutoff=0.7)
    return f": did you mean {by_folded[found[0]]}?" if found else ""
