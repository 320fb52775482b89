"""Ask the library everything whose answer is kept beside this file, and name what comes out otherwise.

An answer is a value, or by what error bad input is refused. Answers were written down from this library, whose tests
say that they are right: one that comes out otherwise says that it is another library now.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

from analytic.model_files import LEARNERS as STORED
from federation.learners import LEARNERS, LearnerEntry
from federation.modes import MODES, Mode
from simulations.audit.questions import Question
from simulations.audit.questions.of_deployments import about_deployments
from simulations.audit.questions.of_documents import about_documents
from simulations.audit.questions.of_draws import about_draws
from simulations.audit.questions.of_forms import about_forms
from simulations.audit.questions.of_guards import about_guards
from simulations.audit.questions.of_privacy import about_privacy
from simulations.audit.questions.of_sessions import about_sessions
from simulations.audit.questions.of_sites import about_sites
from simulations.audit.questions.of_sizes import about_sizes
from simulations.audit.questions.of_stores import about_stores
from simulations.audit.questions.of_sums import about_sums
from simulations.audit.questions.of_values import about_values
from simulations.audit.questions.of_variants import about_variants
from simulations.audit.questions.said import OURS, answer

ANSWERS = Path(__file__).with_name("answers.json")


def questions() -> Iterator[Question]:
    """Return all of them by name."""
    yield from about_sums()
    yield from about_sessions()
    yield from about_privacy()
    yield from about_forms()
    yield from about_sites()
    yield from about_sizes()
    yield from about_stores()
    yield from about_draws()
    yield from about_values()
    yield from about_documents()
    yield from about_variants()
    yield from about_guards()
    yield from about_deployments()


def answers() -> dict[str, str]:
    """Return what the library answers now."""
    said = logging.root.manager.disable
    logging.disable()
    try:
        with _ours_alone():
            return {name: answer(ask) for name, ask in questions()}
    finally:
        logging.disable(said)


@contextmanager
def _ours_alone() -> Iterator[None]:
    """Hide modes and learners that a program added to ours: refusals list all names."""
    registries: tuple[dict[str, Any], ...] = (MODES, cast("dict[str, Any]", LEARNERS), STORED)
    whole = [dict(registry) for registry in registries]
    try:
        for registry, known in zip(registries, whole, strict=True):
            for name, entry in known.items():
                if not _is_ours(entry):
                    del registry[name]
        yield
    finally:
        for registry, known in zip(registries, whole, strict=True):
            registry.clear()
            registry.update(known)


def _is_ours(entry: Any) -> bool:
    """Whether a learner, or what makes one or a mode's sum, is of these packages."""
    made = entry.make if isinstance(entry, Mode) else entry.build if isinstance(entry, LearnerEntry) else entry
    return getattr(made, "func", made).__module__.partition(".")[0] in OURS


def other_answers() -> Iterator[str]:
    """Yield which questions are answered otherwise than they were; what needs an extra that is missing is not asked.

    Raises:
        OSError: there is no folder for temporary files, without which most answers would be others.
    """
    with TemporaryDirectory():
        pass
    known: Mapping[str, str] = json.loads(ANSWERS.read_text(encoding="utf-8"))
    try:
        yield from (name for name, answer in answers().items() if answer != known.get(name))
    except Exception as error:  # what questions are about cannot be made
        yield f"questions end in {type(error).__name__}"


if __name__ == "__main__":
    ANSWERS.write_text(json.dumps(answers(), indent=0) + "\n", encoding="utf-8")
