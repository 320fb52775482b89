"""An audit as JSON, in the form that ``audit.schema.json`` describes. No row of anybody is in it."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

from simulations.audit.audit import Audit, Cell, CurvePoint
from simulations.audit.catalogue import ATTACKS
from simulations.audit.evaluate import ALPHA, CONFIDENCE, Score, area_under_roc, roc_point
from simulations.audit.noisy_totals import NoiseEvidence
from simulations.report.json_report import versions

SCHEMA_VERSION = 1
FALSE_POSITIVE_RATES = (0.001, 0.01)


def to_json(audit: Audit) -> str:
    """The report as text, with a line break at its end."""
    return json.dumps(to_document(audit), indent=2, allow_nan=False) + "\n"


def to_document(audit: Audit) -> dict[str, Any]:
    """The report as plain dicts, lists, strings and numbers."""
    data = audit.dataset
    return {
        "schema": "analytic-secagg/audit",
        "schema_version": SCHEMA_VERSION,
        "versions": versions(),
        "dataset": {
            "name": data.name,
            "sha256": data.sha256,
            "train_rows": len(data.x_train),
            "test_rows": len(data.x_test),
            "features": data.n_features,
            "classes": data.n_classes,
        },
        "settings": _settings(audit),
        "holds": audit.holds,
        "attacks": [
            {"name": attack.json_name, "title": attack.title, "explanation": attack.explanation}
            for attack in audit.attacks
        ],
        "cells": [_cell(cell) for cell in audit.cells],
        "cohort_curve": [_point(point) for point in audit.cohort_curve],
        "row_curve": [_point(point) for point in audit.row_curve],
        "deep_curve": [{"sums": sums, "score": score_document(score)} for sums, score in audit.deep_curve.items()],
        "coalitions": [
            {
                "mode": one.mode,
                "coalition": one.coalition,
                "members": one.members,
                "should_break": one.should_break,
                "as_stated": one.as_stated,
                "score": score_document(one.score),
            }
            for one in audit.coalitions
        ],
        "controls": [
            {
                "name": control.name,
                "title": control.title,
                "caught": control.caught,
                "scores": {name: score_document(score) for name, score in control.scores.items()},
            }
            for control in audit.controls
        ],
        "noise": [_noise(one) for one in audit.privacy],
        "not_tested": list(audit.not_tested),
        "seconds": audit.seconds,
    }


def score_document(score: Score) -> dict[str, Any]:
    """A score's numbers, with its interval and what it could have noticed."""
    low, high = score.interval
    has_scores = bool(score.members and score.others)
    return {
        "hits": score.hits,
        "trials": score.trials,
        "chance": score.chance,
        "rate": score.rate,
        "low": low,
        "high": high,
        "p_value": score.p_value,
        "smallest_noticed": score.smallest_noticed,
        "verdict": score.verdict.value,
        "auc": area_under_roc(score.members, score.others) if has_scores else None,
        "true_positive_rates": [
            {"false_positive_rate": p.false_positive_rate, "rate": p.true_positive_rate, "low": p.low, "high": p.high}
            for p in (roc_point(score.members, score.others, rate) for rate in FALSE_POSITIVE_RATES if has_scores)
        ],
    }


def load_schema() -> dict[str, Any]:
    """The JSON Schema of ``to_document``, as shipped with this package."""
    text = resources.files("simulations.report").joinpath("audit.schema.json").read_text(encoding="utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema


def _settings(audit: Audit) -> dict[str, Any]:
    settings = audit.settings
    return {
        "learner": settings.learner.name,
        "modes": [mode.name for mode in settings.modes],
        "clients": settings.clients,
        "rows_per_client": settings.rows_per_client,
        "cohorts": list(settings.cohorts),
        "row_counts": list(settings.row_counts),
        "coalitions": None if settings.coalitions is None else list(settings.coalitions),
        "sessions": settings.sessions,
        "trials": settings.trials,
        "format": str(audit.feature_format),
        "format_chosen_from_rows": settings.feature_format is None,
        "epsilon": list(settings.epsilon),
        "seed": settings.seed,
        "confidence": CONFIDENCE,
        "alpha": ALPHA,
    }


def _cell(cell: Cell) -> dict[str, Any]:
    return {
        "attack": ATTACKS[cell.attack].json_name,
        "mode": cell.mode,
        "verdict": cell.verdict.value,
        "expectation": cell.expectation.value,
        "as_expected": cell.as_expected,
        "score": None if cell.score is None else score_document(cell.score),
    }


def _point(point: CurvePoint) -> dict[str, Any]:
    return {
        "attack": ATTACKS[point.attack].json_name,
        "clients": point.clients,
        "rows": point.rows,
        "score": score_document(point.score),
    }


def _noise(one: NoiseEvidence) -> dict[str, Any]:
    return {
        "name": one.name,
        "title": one.title,
        "planted": bool(one.fault),
        "epsilon": one.epsilon,
        "delta": one.delta,
        "lower_bound": one.lower_bound,
        "canaries": one.canaries,
        "guesses": one.guesses,
        "correct": one.correct,
        "noise_ratio": one.noise_ratio,
        "noise_low": one.noise_low,
        "noise_high": one.noise_high,
        "lattice_p_value": one.lattice_p_value,
        "refuted": one.refuted,
        "as_expected": one.as_expected,
        "membership": score_document(one.membership),
    }
