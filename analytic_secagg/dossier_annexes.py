"""Annexes that officers file: templates in ``annexes/``, filled from a dossier's facts.

They have the headings of a data protection impact assessment (GDPR, article 35; the two questions of EDPB Opinion
28/2024), a record of processing (GDPR, article 30), NIST SP 800-226, SATRE's output management and the EHDS regulation
with TEHDAS2's guidelines. ``[to fill in: ...]`` marks what no file of a run can know.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from analytic_secagg.audit_result import AuditResult

ASSESSMENT = "annexes/dpia.md"
ANNEXES = (
    ASSESSMENT,
    *(f"annexes/{name}.md" for name in ("record-of-processing", "nist-sp-800-226", "satre", "ehds-tehdas2")),
)
"""Their places in the dossier, and in this package."""


def annexes(facts: dict[str, Any]) -> dict[str, str]:
    """Return the annexes in Markdown, by place in the dossier.

    Args:
        facts: what ``analytic_secagg.dossier.Evidence`` gathers of the other files.
    """
    return {name: _filled(name, facts | {"planned": None}) for name in ANNEXES}


def draft_assessment(report: Any, audit: AuditResult, learnt: Iterable[str]) -> str:
    """Return a draft of the data protection impact assessment before any run, in Markdown.

    Args:
        report: the report of an audit of rehearsed sums (``simulations.audit.record.Audit``).
        audit: the same, as a dossier reads it.
        learnt: the decision and what was learnt, in sentences.
    """
    return _filled(ASSESSMENT, {"planned": report, "audit": audit, "learnt": learnt})


def _filled(name: str, facts: Mapping[str, Any]) -> str:
    templates = Environment(
        loader=PackageLoader("analytic_secagg", ""),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_plain,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return re.sub(r"\n{3,}", "\n\n", templates.get_template(name).render(facts))


def _plain(value: Any) -> Markup:
    """Return a value as text within one line of Markdown: a file's words make no heading, cell, link or mark."""
    if isinstance(value, Markup):
        return value
    text = " ".join(str(value).splitlines())
    return Markup(re.sub(r"([\\|`*\[\]<>])", r"\\\1", text))  # noqa: S704  # Markdown, in which these are escaped
