"""Sums in series: who is lost between them, what ends a series, and which invitations a site takes for one."""

from __future__ import annotations

from collections import Counter

import pytest
from support.parties import resealed
from support.rehearsed import IsGone, edit_all, events, is_exact, is_wiped, proposal, rehearse, run_config, site

from analytic_secagg.site.errors import DeclinedError, NoSessionError, Refusal
from analytic_secagg.site.key_files import read_secret
from analytic_secagg.site.messages import INVITE, STEP, read_messages, read_proposal, write_messages
from analytic_secagg.trial import Trial
from secagg.errors import TooFewSurvivorsError
from secagg.primitives.identity import IdentityKey
from secagg.wire import PART_SIZE_BYTES, payload_of

DEEP = {"learner": "deepafl", "options": "n_layers=2 d_phi=8 d_f=8", "ridge": 0.01}
"""Five sums."""

FIRST = ["INVITATION", "ROSTER", "SHARE_DELIVERY", "UNMASK_REQUEST", "SURVIVOR_PROOF"]
LATER = ["INVITATION", "UNMASK_REQUEST", "SURVIVOR_PROOF"]


@pytest.fixture
def deep_trial(trial: Trial) -> Trial:
    edit_all(trial, ('learners = ["afl"]', 'learners = ["deepafl"]'))
    return trial


def opened(trial: Trial) -> list[str]:
    return [event["round"] for event in events(trial) if event["event"] == "round opens"]


def survivors(trial: Trial) -> list[list[int]]:
    return [event["survivors"] for event in events(trial) if event["event"] == "sum"]


def vanishes_in_sum(parties: set[int], number: int, kind: str, *, back: bool = False) -> IsGone:
    """A fault: these sites miss the messages of a kind in one sum, and all after it unless they are back."""
    invited: Counter[int] = Counter()

    def is_gone(party: int, came: str) -> bool:
        invited[party] += came == INVITE
        if party not in parties:
            return False
        if back:
            return invited[party] == number and came == kind
        return invited[party] > number or (invited[party] == number and came == kind)

    return is_gone


@pytest.mark.parametrize(
    ("kind", "left"),
    [(INVITE, [[1, 2, 3, 4, 5], [1, 2, 3, 4]]), (STEP, [[1, 2, 3, 4, 5], [1, 2, 3, 4, 5], [1, 2, 3, 4]])],
    ids=["before its vector", "after its vector"],
)
@pytest.mark.parametrize("back", [False, True])
def test_who_misses_a_message_is_out_until_a_new_series(
    deep_trial: Trial, kind: str, left: list[list[int]], back: bool
) -> None:
    fault = vanishes_in_sum({5}, 2, kind, back=back)
    rehearse(deep_trial.folder, run_config(**DEEP), is_gone=fault)
    found = survivors(deep_trial)
    assert found[: len(left)] == left
    assert all(parties == [1, 2, 3, 4] for parties in found[len(left) :])
    assert opened(deep_trial) == [*FIRST, *(4 * LATER), "END"]


def test_too_many_losses_over_all_sums_stop_the_run_until_one_is_back(deep_trial: Trial) -> None:
    """Who is out stays out, so losses add up: two in the second sum and one in the fourth are too many for 0.4 of 5."""
    gone = [vanishes_in_sum({4, 5}, 2, INVITE), vanishes_in_sum({3}, 4, INVITE)]
    with pytest.raises(TooFewSurvivorsError):
        rehearse(deep_trial.folder, run_config(**DEEP), is_gone=lambda *seen: 1 in {f(*seen) for f in gone})
    assert survivors(deep_trial) == [[1, 2, 3, 4, 5], [1, 2, 3], [1, 2, 3]]
    rehearse(deep_trial.folder, run_config(**DEEP))
    assert survivors(deep_trial)[:4] == [[1, 2, 3, 4, 5], [1, 2, 3], [1, 2, 3], [1, 2, 3]]
    assert is_wiped(deep_trial)


def test_a_new_series_begins_where_too_few_are_set_up(deep_trial: Trial) -> None:
    """Three sites withhold their shares for the third sum; it begins anew, with everybody, and the run goes on."""

    def hear(party: int, kind: str, content: bytes, answer: bytes | Refusal) -> bytes | Refusal:
        if len(survivors(deep_trial)) != 1 or party < 3 or kind != STEP or isinstance(answer, Refusal):
            return answer
        session, said = read_messages(answer)
        return write_messages({party: first_part(deep_trial, party, said[party])}, session=session)

    rehearse(deep_trial.folder, run_config(**DEEP), hear=hear)
    assert survivors(deep_trial) == [[1, 2, 3, 4, 5]] * 5
    is_exact(deep_trial, [1, 2, 3, 4, 5])
    assert opened(deep_trial) == [*FIRST, *LATER, *FIRST, *(2 * LATER), "END"]
    assert sum(event["event"] == "series ends" for event in events(deep_trial)) == 1
    assert is_wiped(deep_trial)


def first_part(trial: Trial, party: int, bundle: bytes) -> bytes:
    """A site's bundle with its first message alone."""
    payload = payload_of(bundle)
    size = int.from_bytes(payload[:PART_SIZE_BYTES], "big")
    own = IdentityKey(read_secret(trial.folder / f"site-{party}" / "identity.key"))
    return resealed(bundle, payload[: PART_SIZE_BYTES + size], {party: own})


def test_the_invitations_of_a_series_come_in_order(trial: Trial) -> None:
    first = proposal(place=1)
    said = site(trial, 1).join(first)
    assert site(trial, 1).join(first) == said
    for place, reason in ((3, "another proposal"), (0, "another proposal")):
        with pytest.raises(NoSessionError, match=reason):
            site(trial, 1).join(proposal(place=place, session=first.session), {})
    with pytest.raises(NoSessionError, match="this series is not here"):
        site(trial, 1).join(proposal(place=2), {})
    with pytest.raises(NoSessionError, match="a party that it is not"):
        site(trial, 1).join(proposal(place=2, session=first.session), {2: b""})
    with pytest.raises(NoSessionError, match="another proposal"):
        site(trial, 1).join(first)


@pytest.mark.parametrize("mode", ["committee", "plain"])
def test_other_modes_have_no_series(trial: Trial, mode: str) -> None:
    helpers = (101, 102) if mode == "committee" else ()
    with pytest.raises(DeclinedError, match="has no multi-round session"):
        site(trial, 1).join(proposal(mode=mode, helpers=helpers, min_survivors=3, place=1))


def test_a_learner_with_one_sum_begins_no_series(trial: Trial) -> None:
    places = []

    def tell(party: int, kind: str, content: bytes) -> bytes:
        if kind == INVITE:
            places.append(read_proposal(content)[0].terms)
        return content

    rehearse(trial.folder, run_config(), tell=tell)
    assert len(places) == 5
    assert all(b'"place":0' in terms for terms in places)
