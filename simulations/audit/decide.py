"""The decision rule, fixed before a run: what must be hidden, and what may be seen up to a limit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum

from pydantic import Field

from analytic_secagg.audit_plan import STANDARD_RULE
from simulations.audit.attack import Limit
from simulations.audit.evaluate import COIN, Area, Score
from simulations.report.document import Count, Natural, NotNegative, Part, Record, computed


class Rule(StrEnum):
    """By which rule a result is judged."""

    MUST_HIDE = "must hide"
    """A message of a mode that protects it: any leak fails."""
    MAY_BE_SEEN = "may be seen"
    """A total or a model of the owner's cohort: a number beside the limit that the owner states."""
    COMPARISON = "comparison"
    """The same of a cohort of another size, which decides nothing."""
    CONTROL = "control"
    """Where nothing protects: the attack must win, or what it says elsewhere counts for nothing."""
    KNOWN = "known"
    """What is known to leak, or is not promised: it shows what an assumption is worth, and decides nothing."""


class Outcome(StrEnum):
    """The outcome of one result. None says that something is safe."""

    NOTHING_FOUND = "nothing found"
    LEAK = "leak"
    WITHIN = "within the limit"
    OVER = "over the limit"
    NOT_DECIDED = "not decided"
    WON = "attack works"
    LOST = "attack does not work"
    SEEN = "no limit"
    """A number that no limit is stated for, or that decides nothing."""


class Verdict(StrEnum):
    """The decision of an audit."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_DECIDED = "not decided"


class DecisionRule(Record, title="rule"):
    """All that a decision follows, public and fixed before the run; a plan holds it word for word."""

    family_error: Part = STANDARD_RULE["family_error"]
    """How often one or more of all results that must hide something are called a leak by accident (Holm, 1979)."""
    notices: Part = STANDARD_RULE["notices"]
    """A result that would not have noticed a leak in this part of the trials, nine times out of ten, is not decided."""
    notices_coins: Part = STANDARD_RULE["notices_coins"]
    """The same for attacks that a blind guess wins half of the time."""
    limits: dict[str, NotNegative | None] = Field(default_factory=lambda: dict(STANDARD_RULE["limits"]))
    """Limits of what totals and models may show; null for none. rebuilt_rows: part of the rows that an attack looks for
    and rebuilds. membership: area under the ROC curve for the tenth of the rows that lies farthest out. attribute: what
    is added to a blind guess. group_share: least mean error."""

    def limit_of(self, limit: Limit | None) -> float | None:
        """Return the limit of a number; None where there is none."""
        return None if limit is None else self.limits.get(limit.value)


class ExposureRecord(Record, title="exposure"):
    """One thing that was seen: a column of the report."""

    name: str
    """What reports call it: a mode, for its messages; or a total or a model in words."""
    kind: str
    """message, total, totals (several), noisy total or model."""
    clients: Count
    """Clients of the cohort."""
    rows: Natural
    """Rows behind it; for messages those of one client on average."""
    exposed_by: str = ""
    """Of messages, who can expose one by working together, as the protocol states; for totals and models empty."""


class Result(Record, title="result"):
    """The result of one attack on one exposure."""

    attack: str
    """Name of the attack."""
    exposure: str
    """Name of what was seen."""
    rule: Rule
    """By which rule it is judged."""
    limit_name: str = Field(default="", exclude=True)
    """The number that is limited, by its name in the rule; empty for none."""
    limit: NotNegative | None = Field(default=None, exclude=True)
    """The owner's limit of ``value``, by the rule; None for none."""
    score: Score | None = Field(exclude=True)
    """The numbers; None where the attack was not tried."""
    reason: str = Field(default="", exclude=True)
    """Why it was not tried to its end, which the report's limitations say too; empty where it was."""
    noticed: Part | None = None
    """The smallest leak, as a part of the trials, that would have been noticed nine times out of ten; null for none."""
    outcome: Outcome = Outcome.SEEN
    """What it comes to."""

    @computed
    def hits(self) -> Natural | None:
        """Trials in which the attack was right; null where it was not tried."""
        return None if self.score is None else self.score.hits

    @computed
    def trials(self) -> Natural | None:
        """Trials."""
        return None if self.score is None else self.score.trials

    @computed
    def chance(self) -> Part | None:
        """How often a guess that saw nothing is right; of an estimate its mean error."""
        if self.score is None:
            return None
        return _short(self.score.chance if self.score.blind_error is None else min(1.0, self.score.blind_error))

    @computed
    def p_value(self) -> Part | None:
        """How often a guess that saw nothing does at least as well."""
        return None if self.score is None else _short(self.score.p_value)

    @computed
    def value(self) -> Part | None:
        """The number that a limit is compared with; null where there is none: a message, or nothing to look for."""
        return None if self.number is None else _short(self.number.value)

    @computed
    def interval(self) -> list[Part] | None:
        """Both ends of the 95 % interval of ``value``; null where it has none."""
        return None if self.number is None else [_short(self.number.low), _short(self.number.high)]

    @property
    def columns(self) -> dict[str, float]:
        """Of an attack on hidden values: by column, how much more often its value was told than by a blind guess."""
        return {} if self.score is None else self.score.columns

    @property
    def number(self) -> Area | None:
        """The number that has a limit by its name, with its interval; an error of an estimate has none."""
        score = self.score
        if score is None or not self.limit_name or (not score.trials and score.error is None):
            return None
        if self.limit_name == Limit.MEMBERSHIP:
            return score.worst_tenth
        if score.error is not None:
            return Area(value=min(1.0, score.error), low=min(1.0, score.error), high=min(1.0, score.error))
        if self.limit_name == Limit.ATTRIBUTE:
            above = (max(0.0, end - score.chance) for end in (score.rate, score.low, score.high))
            return Area(**dict(zip(("value", "low", "high"), above, strict=True)))
        return Area(value=score.rate, low=score.low, high=score.high)


def _short(value: float) -> float:
    """Return a number with the digits that say something."""
    return float(f"{value:.3g}")


def decided(results: Sequence[Result], rule: DecisionRule, working: Mapping[str, bool]) -> list[Result]:
    """Return the results with their outcomes.

    Args:
        results: all of one audit.
        rule: how they are judged.
        working: for each attack whether it won its positive control; one that is not named has none.
    """
    family = [one for one in results if one.rule is Rule.MUST_HIDE and one.score is not None and one.score.trials]
    leaks = _holm([one.score.p_value if one.score else 1.0 for one in family], rule.family_error)
    leaking = {id(one) for one, is_leak in zip(family, leaks, strict=True) if is_leak}
    each = rule.family_error / max(1, len(family))
    return [_decided(one, rule, working.get(one.attack, False), id(one) in leaking, each) for one in results]


def _decided(one: Result, rule: DecisionRule, works: bool, leaks: bool, alpha: float) -> Result:
    score = one.score
    noticed = None if score is None else score.smallest_noticed(alpha)
    changes: dict[str, object] = {"noticed": None if noticed is None else _short(noticed)}
    if score is None:
        changes["outcome"] = Outcome.SEEN if one.rule in (Rule.COMPARISON, Rule.KNOWN) else Outcome.NOT_DECIDED
    elif one.rule is Rule.CONTROL:
        changes["outcome"] = Outcome.WON if score.leaked else Outcome.LOST
    elif one.rule is Rule.MUST_HIDE:
        needed = rule.notices_coins if score.chance > COIN else rule.notices
        blind = not works or (score.trials > 0 and (noticed is None or noticed > needed))  # of no trial none can leak
        changes["outcome"] = Outcome.LEAK if leaks else Outcome.NOT_DECIDED if blind else Outcome.NOTHING_FOUND
    elif one.rule is Rule.MAY_BE_SEEN:
        changes["outcome"] = _beside_limit(one, works)
    return one.model_copy(update=changes)


def _beside_limit(one: Result, works: bool) -> Outcome:
    """Compare a number with its limit; where the limit lies in a membership's interval, the trials do not decide."""
    number, limit = one.number, one.limit
    if limit is None:
        return Outcome.SEEN
    if number is None:  # nothing to look for, such as a class of one row
        return Outcome.WITHIN if works else Outcome.NOT_DECIDED
    if one.limit_name == Limit.GROUP_SHARE:
        return Outcome.OVER if number.value < limit else Outcome.WITHIN
    if one.limit_name == Limit.MEMBERSHIP:
        is_over, is_within = number.low > limit, number.high < limit
    elif one.limit_name == Limit.REBUILT_ROWS:
        is_over, is_within = number.value > limit, number.value <= limit  # each hit is a row, not an estimate
    else:
        is_over, is_within = number.low > limit, number.value <= limit
    if is_over:
        return Outcome.OVER
    return Outcome.WITHIN if is_within and works else Outcome.NOT_DECIDED


def _holm(p_values: Sequence[float], family_error: float) -> list[bool]:
    """Return which hypotheses Holm's step-down procedure rejects at this family error."""
    rejected, order = [False] * len(p_values), sorted(range(len(p_values)), key=lambda place: p_values[place])
    for rank, place in enumerate(order):
        if p_values[place] >= family_error / (len(p_values) - rank):
            break
        rejected[place] = True
    return rejected
