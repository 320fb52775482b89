"""Diffs that pages show, applied to the programs that they show."""

from __future__ import annotations


def applied(program: str, diff: str) -> str:
    """Return the program with a diff's lines in place of those that it takes away, or after the line that it names."""
    lines, place = program.splitlines(), 0
    for line in diff.splitlines():
        mark, text = line[0], line[1:]
        if mark == "+":
            lines.insert(place, text)
            place += 1
        else:
            place = lines.index(text) + (mark == " ")
            if mark == "-":
                del lines[place]
    return "\n".join(lines) + "\n"
