"""State diagrams as pictures: a code host draws Mermaid blocks with scripts, this site has the picture in the page."""

from __future__ import annotations

import re
from html import escape
from typing import Any

from docutils import nodes
from sphinx.transforms.post_transforms import SphinxPostTransform

ARROW = re.compile(r"(\S+) --> ([^:\s]+)(?:: (.+))?")
WIDTH, BOX_WIDTH, BOX_HEIGHT, STEP, MIDDLE, SIDE = 640, 170, 30, 72, 100, 520


class DrawStates(SphinxPostTransform):
    """Puts the picture where the Mermaid block stands."""

    default_priority = 400
    formats = ("html",)

    def run(self, **_: Any) -> None:
        """Replace every block of the page."""
        for block in list(self.document.findall(nodes.literal_block)):
            if block.get("language") == "mermaid":
                block.replace_self(nodes.raw("", state_picture(block.astext()), format="html"))


def state_picture(diagram: str) -> str:
    """An SVG of a state diagram that runs straight down, with its faults to one state at the side.

    Args:
        diagram: a Mermaid state diagram of a client's table of transitions (``secagg.masked.states``).
    """
    arrows = [match.groups() for match in map(ARROW.fullmatch, map(str.strip, diagram.splitlines())) if match]
    inner = [arrow for arrow in arrows if "[*]" not in arrow[:2]]
    down = [arrow for arrow in inner if arrow[2] != "fault"]
    faults = [arrow for arrow in inner if arrow[2] == "fault"]
    top = {state: STEP * place for place, state in enumerate([down[0][0], *(after for _, after, _ in down)])}
    height = max(top.values()) + BOX_HEIGHT + 2
    parts = [_box(MIDDLE, at, state) for state, at in top.items()]
    for before, after, said in down:
        start, end = top[before] + BOX_HEIGHT, top[after]
        parts += [_path(f"M{MIDDLE},{start} V{end}"), _text(MIDDLE + 10, (start + end) / 2 + 4, said, "start")]
    end = height - BOX_HEIGHT - 2
    parts += [_box(SIDE, end, faults[0][1]), _text(SIDE + 10, end - 14, "on any fault", "start")]
    for before, _, _ in faults:
        parts.append(_path(f"M{MIDDLE + BOX_WIDTH / 2},{top[before] + BOX_HEIGHT / 2} H{SIDE} V{end}", dashes="4 4"))
    arrow_head = '<marker id="end" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto">'
    arrow_head += '<path d="M0,1 L7,4 L0,7" fill="none" stroke="currentColor"/></marker>'
    return (
        f'<svg viewBox="-1 -1 {WIDTH} {height}" role="img" style="max-width: {WIDTH}px; width: 100%" '
        f'font-family="sans-serif" font-size="12"><title>{escape(diagram)}</title><defs>{arrow_head}</defs>'
        f"{''.join(parts)}</svg>"
    )


def _box(middle: float, top: float, state: str) -> str:
    left = middle - BOX_WIDTH / 2
    frame = f'<rect x="{left}" y="{top}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="6"'
    return f'{frame} fill="none" stroke="currentColor"/>' + _text(middle, top + BOX_HEIGHT / 2 + 5, state, "middle")


def _path(way: str, dashes: str = "none") -> str:
    return f'<path d="{way}" fill="none" stroke="currentColor" stroke-dasharray="{dashes}" marker-end="url(#end)"/>'


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" fill="currentColor">{escape(text)}</text>'
