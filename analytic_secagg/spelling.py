"""Spellings of one text: white space never makes a class, and a value written in two ways is one value."""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Iterable
from decimal import Decimal

_PLAIN = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?")
_FORMULA = re.compile(r'="(.*)"')
_WITHIN = "\x1c\x1d\x1e\x1f"
"""White space to Python, and marks between fields: two numbers with one between them are no number."""

_CONTROLS = "".join(map(chr, (*range(33), *range(127, 160))))
_GUARDED = re.compile(r"'(?=[-+=@])")


def tidy(text: str) -> str:
    r"""Return a text as it is meant, without what its file or spreadsheet added.

    White space and control characters at its ends go, white space inside becomes one blank (no-break spaces are white
    space), and signs that nobody sees go; letters are in their composed form; the minus sign of typesetters is a minus.
    A spreadsheet's ``="007"`` is 007, and the apostrophe that protects ``'-5`` from being a formula goes.

    Example:
        >>> tidy(" not\u00a0known ")
        'not known'
    """
    if not text.isascii():
        text = unicodedata.normalize("NFC", text).translate({0x2212: "-"})
    if not text.isprintable():
        signs = (" " if sign.isspace() and sign not in _WITHIN else sign for sign in text)
        text = "".join(sign for sign in signs if unicodedata.category(sign) != "Cf").strip(_CONTROLS)
    text = " ".join(part for part in text.split(" ") if part)
    if text[:1] == "=" and (formula := _FORMULA.fullmatch(text)):
        return tidy(formula[1])
    return _GUARDED.sub("", text, count=1) if text[:1] == "'" else text


def loose(text: str) -> str:
    """Return what a tidy text has in common with its other spellings: small and capital letters, 1 and 1.0 and 01.

    Example:
        >>> loose("Male") == loose("male"), loose("1.0") == loose("1"), loose("1.000e+00") == loose("1")
        (True, True, True)
    """
    if _PLAIN.fullmatch(text):
        return format(Decimal(text).normalize(), "f")
    return text.casefold()


def nearest(word: str, known: Iterable[str]) -> str:
    """``: did you mean ...?`` for the known word that looks most like this one; nothing where none does."""
    by_folded = {name.casefold(): name for name in known}
    found = difflib.get_close_matches(word.casefold(), by_folded, n=1, cutoff=0.7)
    return f": did you mean {by_folded[found[0]]}?" if found else ""
