"""Who must work together to open one client's message: every coalition against the protocol's own statement."""

from __future__ import annotations

from collections.abc import Iterator

from federation.modes import Mode
from secagg import CommitteeSum, MaskedSum
from secagg.errors import ConfigurationError
from simulations.audit.attack import Attack, CoalitionScore, NotTriedError, Outcome, attacked
from simulations.audit.attacks.collusion import Collusion
from simulations.audit.evaluate import Score
from simulations.audit.recorder import RecordedSum, helper_secrets, view_of
from simulations.audit.view import SERVER_ALONE, WIRE_TAPPER, Coalition
from simulations.audit.workbench import Bench

COHORT = 7


class Coalitions(Attack):
    """The server with ever more clients or helpers, over the same recorded sum."""

    name = "collusion"
    title = Collusion().title
    explanation = Collusion().explanation

    def play(self, bench: Bench, mode: Mode | None, trials: int) -> Outcome:
        """Every coalition; the score is that of all those which the protocol claims to withstand.

        Raises:
            NotTriedError: the mode cannot serve such a cohort.
        """
        assert mode is not None
        try:
            scores = tuple(by_coalition(bench, mode, COHORT))
        except ConfigurationError as error:
            raise NotTriedError(f"collusion in mode {mode.name}: {error}") from error
        withstood = [one.score for one in scores if not one.should_break]
        return Outcome(score=Score.pooled(withstood or [one.score for one in scores]), coalitions=scores)


def by_coalition(bench: Bench, mode: Mode, n_clients: int) -> Iterator[CoalitionScore]:
    """What each coalition makes of the messages of the clients outside it."""
    cohort = bench.cohort(n_clients)
    recorded = bench.run(mode, bench.vectors(cohort))
    for coalition, should_break in _coalitions(recorded, bench.coalitions):
        view = view_of((recorded,), coalition, bench.known())
        scores = [
            attacked(Collusion(), view, party, bench.truth(indices, recorded.inputs[party]), bench.rng)
            for party, indices in cohort.items()
            if party not in coalition.parties
        ]
        yield CoalitionScore(
            mode=mode.name,
            coalition=coalition.name,
            members=len(coalition.parties),
            should_break=should_break,
            score=Score.pooled(scores),
        )


def _coalitions(recorded: RecordedSum, sizes: tuple[int, ...] | None) -> Iterator[tuple[Coalition, bool]]:
    """Coalitions with what the protocol states about each."""
    protocol = recorded.protocol
    helpers = tuple(helper_secrets(protocol))
    yield WIRE_TAPPER, protocol.name == "plain"
    if isinstance(protocol, MaskedSum):
        clients, threshold = protocol.clients, protocol.shares_needed
        for n in sizes if sizes is not None else range(len(clients)):
            if n < len(clients):
                name = f"server and {n} of {len(clients)} clients (threshold {threshold})"
                members, enough = frozenset(clients[len(clients) - n :]), n >= min(threshold, len(clients) - 1)
                yield Coalition(name=name, server=True, parties=members), enough and not helpers
                if helpers:
                    yield (
                        Coalition(name=f"{name} and the key holder", server=True, parties=members | {*helpers}),
                        enough,
                    )
        return
    yield SERVER_ALONE, protocol.name == "plain"
    what = "helpers" if isinstance(protocol, CommitteeSum) else "key holders"
    for n in range(1, len(helpers) + 1):
        members = frozenset(helpers[:n])
        yield Coalition(name=f"{n} of {len(helpers)} {what}, without the server", parties=members), False
        name = f"server and {n} of {len(helpers)} {what}"
        yield Coalition(name=name, server=True, parties=members), n == len(helpers)
