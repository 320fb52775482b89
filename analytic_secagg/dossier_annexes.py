"""Annexes that officers file, filled from a dossier's facts; what a person must still add is marked as such.

They name the frameworks' own headings: a data protection impact assessment (GDPR, article 35), the two questions of
EDPB Opinion 28/2024 on whether a model is anonymous, the parts of NIST SP 800-226, SATRE v2 3.3.07, the six attacks of
vantage6's privacy tables, and a target and a report in the form that SACRO-ML reads.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

PERSON = "**[a person adds]**"
"""Marks what no file of a run can know."""

Facts = Mapping[str, Any]


def annexes(facts: Facts) -> dict[str, str]:
    """Return the annexes by their places in the dossier.

    Args:
        facts: what ``analytic_secagg.dossier`` gathers of the other files.
    """
    return {
        "annexes/dpia.md": _dpia(facts),
        "annexes/edpb-28-2024.md": _edpb(facts),
        "annexes/nist-sp-800-226.md": _nist(facts),
        "annexes/satre-3.3.07.md": _satre(facts),
        "annexes/vantage6.md": _vantage6(facts),
        "sacro/target.yaml": _json(_sacro_target(facts)),
        "sacro/report.json": _json(_sacro_report(facts)),
    }


def _page(title: str, *parts: tuple[str, Sequence[str]]) -> str:
    lines = [f"# {title}", "", f"Filled from the signed files beside it. {PERSON} marks what they cannot say."]
    for heading, items in parts:
        lines += ["", f"## {heading}", "", *(f"- {item}" for item in items)]
    return "\n".join(lines) + "\n"


def _dpia(facts: Facts) -> str:
    return _page(
        "Data protection impact assessment: what the run shows",
        (
            "Description of the processing",
            [
                f"purpose, lawful basis and controllers: {PERSON}",
                f"the roster {facts['roster']['fingerprint']} lists {facts['roster']['clients']} clients",
                *_about_runs(facts),
                "rows stay at the sites; what leaves is one vector a client and sum, of the `segments` in summary.json",
            ],
        ),
        ("Necessity and proportionality", [f"why these features, and these rows: {PERSON}", *_policies(facts)]),
        ("Risks to people", [*_audit(facts), *_gates(facts), f"who could be harmed, how badly, how likely: {PERSON}"]),
        ("Measures", [*_measures(facts), f"residual risk and who accepts it, consultation of the officer: {PERSON}"]),
    )


def _edpb(facts: Facts) -> str:
    return _page(
        "EDPB Opinion 28/2024: is the model anonymous?",
        (
            "1. How likely is it that personal data of who was trained on can be extracted from the model?",
            [
                "the model is a function of the runs' totals alone (recomputed bit for bit where the totals are here: "
                f"{', '.join(facts['with_totals']) or 'nowhere'})",
                *_audit(facts),
                *_gates(facts),
                *_noise(facts),
                f"other means reasonably likely to be used, and by whom: {PERSON}",
            ],
        ),
        (
            "2. How likely is it that queries give personal data away, on purpose or not?",
            [
                "a linear answer is a weighted sum of what is asked; a classifier's answers are its scores",
                *_columns(facts, ("total", "private total")),
                f"who may query the model, how often, and what is logged: {PERSON}",
            ],
        ),
        ("Conclusion", [f"whether both likelihoods are insignificant, and for how long that holds: {PERSON}"]),
    )


def _nist(facts: Facts) -> str:
    plans = [run["privacy"] for run in facts["runs"].values() if run.get("privacy")]
    stated = ["no noise was added in these runs: there is no differential privacy to evaluate"] if not plans else []
    stated += [f"epsilon {plan['epsilon']}, delta {plan['delta']}" for plan in plans]
    return _page(
        "NIST SP 800-226: evaluating differential privacy",
        ("Privacy parameters", stated),
        (
            "Unit of privacy",
            [f"{plan['unit']}, adjacency {plan['adjacency']}" for plan in plans] or ["none is promised"],
        ),
        (
            "Trust model",
            [f"survivors promised: {plan['promised_survivors']}, colluders: {plan['colluders']}" for plan in plans]
            + _measures(facts),
        ),
        ("Composition and budget", [f"bill: {bill}" for bill in facts["bills"]] or ["no ledger is in this dossier"]),
        (
            "Mechanism and implementation",
            [
                "where there is noise it is discrete Gaussian, on integers; no floating-point sum is released",
                *_noise(facts),
                f"side channels of the hosts: {PERSON}",
            ],
        ),
        ("Data collection exposure", [f"who sees rows before noise, at each site: {PERSON}"]),
    )


def _satre(facts: Facts) -> str:
    return _page(
        "SATRE v2, 3.3.07: may model artefacts leave, and under which controls?",
        ("Policy", [f"whether models may leave this environment, and who decides: {PERSON}"]),
        (
            "What would leave",
            [f"{run}/model.safetensors, weights {said['weights_sha256']}" for run, said in facts["runs"].items()],
        ),
        ("Technical controls that ran", [*_measures(facts), *_gates(facts), *_audit(facts)]),
        ("Decision on this release", [f"released, or not, by whom and when: {PERSON}"]),
    )


def _vantage6(facts: Facts) -> str:
    rows = [
        ("Reconstruction", _columns(facts, ("total", "private total")) + _gates(facts)),
        ("Differencing", ["each site's journal decides which totals its rows enter", *_policies(facts)]),
        ("Deep leakage from gradients", _gradients(facts)),
        (
            "Generative adversarial networks",
            ["no site trains on what another one sends: a sum is a fixed function of its rows and the model"],
        ),
        ("Model inversion", _columns(facts, ("total", "private total"))),
        (
            "Watermark attack",
            ["a client may send any vector within the bounds; nothing proves that it comes from rows"],
        ),
    ]
    lines = [
        "# vantage6: known attacks",
        "",
        "| attack | risk analysis from this dossier | risk eliminated? |",
        "| --- | --- | --- |",
    ]
    lines += [f"| {name} | {'; '.join(found) or 'nothing in this dossier'} | {PERSON} |" for name, found in rows]
    return "\n".join(lines) + "\n"


def _about_runs(facts: Facts) -> list[str]:
    return [
        f"{run}: {said['learner']} over {said['mode']}, begun {said.get('started', 'at no time that it says')}, "
        f"survivors {said['survivors']}, certified: {'yes' if said['certified'] else 'no'}"
        for run, said in facts["runs"].items()
    ]


def _measures(facts: Facts) -> list[str]:
    modes, others = sorted({said["mode"] for said in facts["runs"].values()}), facts["receipts_of_other_sums"]
    return [
        f"sums were made in {', '.join(modes)}: who sees what, and who must not collude, is the product's threat model",
        f"{len(facts['receipts'])} receipts verify offline; the first says: {facts['receipts'][0]}"
        if facts["receipts"]
        else "no receipts of these runs' sums are in this dossier",
        *([f"no measure of these runs: receipts of sums that none of them names ({others})"] if others else []),
    ]


def _policies(facts: Facts) -> list[str]:
    return [f"{name}: {json.dumps(said, sort_keys=True)}" for name, said in facts["policies"].items()] or [
        "no site's policy is in this dossier"
    ]


def _gates(facts: Facts) -> list[str]:
    """What release gates said of each run; of one without totals it is marked as the server's word, on one line."""
    said = []
    for run, summary in facts["runs"].items():
        concerns = [(number, one) for number, of in enumerate(summary["sums"], start=1) for one in of["concerns"]]
        if run not in facts["with_totals"]:
            words = json.dumps([one for _, one in concerns], sort_keys=True) if concerns else "nothing"
            said.append(
                f"{run}: release gates are not repeated, as totals are not here; by the server they say {words}"
            )
        elif concerns:
            said += [f"{run}, sum {number}: gate {one['gate']}: {one['message']}" for number, one in concerns]
        else:
            said.append(f"{run}: release gates let every total pass without a word")
    return said


def _gradients(facts: Facts) -> list[str]:
    learners = {str(summary.get("learner", "")) for summary in facts["runs"].values()}
    if any("logistic" in name or not name for name in learners):
        return ["logistic sends gradients, in sums over all sites; an exact one is a total like every other"]
    return ["no gradients are sent: sums are closed-form statistics"]


def _audit(facts: Facts) -> list[str]:
    if facts["audit"] is None:
        return ["no audit is in this dossier"]
    if facts["decision"] is None:
        return [f"audit/audit.json, signed by {facts['auditor']}, decides nothing: no hypotheses were fixed beforehand"]
    decision = facts["decision"]
    return [
        f"hypotheses fixed and signed at {decision['signed_at']}, by the signer's word: {decision['decision']}",
        f"the audit's report is signed by {facts['auditor']}",
        *(f"missing for a decision: {what}" for what in decision["missing"]),
        *(f"that they were fixed before {run} rests on {who}" for run, who in decision["before"].items()),
        *(
            f"{one['attack']} on {one['mode']}, expected {one['expected']}: {one['outcome']}"
            for one in decision["hypotheses"]
        ),
    ]


def _noise(facts: Facts) -> list[str]:
    return [
        f"audit of noise: {one['title']}, claimed epsilon {one['epsilon']}, at least {one['lower_bound']:.3g} by "
        f"attack, sampler {one['sampler']}"
        for one in (facts["audit"] or {}).get("noise", [])
        if one["name"] == "honest"
    ]


def _columns(facts: Facts, columns: Sequence[str]) -> list[str]:
    cells = (facts["audit"] or {}).get("cells", [])
    said = [f"{cell['attack']} on {cell['mode']}: {cell['verdict']}" for cell in cells if cell["mode"] in columns]
    decision = facts["decision"]
    if said and (decision is None or decision["missing"]):
        said.insert(0, "by a report that no decision rests on")
    return said or ["the audit's report has no such column"]


def _sacro_target(facts: Facts) -> dict[str, Any]:
    """What ``sacroml.attacks.target.Target.load`` reads; rows are at the sites, so it names none."""
    run, said = next(iter(facts["runs"].items()))
    settings = said.get("settings", {})
    features = range(settings.get("n_features", 0))
    return {
        "dataset_name": f"{said['learner']} of {run}",
        "dataset_module_path": "",
        "features": {str(place): {"name": str(place), "indices": [place], "encoding": "float"} for place in features},
        "safemodel": [],
        "model_name": said["learner"],
        "model_path": f"../{run}/model.safetensors",
        "model_params": {name: settings[name] for name in ("feature_format", "ridge", "options") if name in settings},
    }


def _sacro_report(facts: Facts) -> dict[str, Any]:
    """Attacks in the form of SACRO-ML's report: those on the runs' modes and on totals that came to a result.

    AUC is the attack's own where it ranks rows; of one that guesses it is how often it was right.
    """
    audit = facts["audit"] or {}
    modes = {said["mode"] for said in facts["runs"].values()}
    found = {}
    for cell in audit.get("cells", []):
        score, mode = cell["score"], cell["mode"]
        if score is None or not (mode in modes or "total" in mode):
            continue
        auc = score["rate"] if score["auc"] is None else score["auc"]
        found[f"{cell['attack']} on {mode}"] = {
            "log_time": audit["date"],
            "metadata": {
                "attack_name": cell["attack"],
                "attack_params": audit["settings"],
                "global_metrics": {"verdict": cell["verdict"], "expectation": cell["expectation"]},
            },
            "attack_experiment_logger": {
                "attack_instance_logger": {
                    "instance_0": {"AUC": auc, "P_HIGHER_AUC": score["p_value"], "ACC": score["rate"]}
                }
            },
        }
    return found


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, sort_keys=True) + "\n"
