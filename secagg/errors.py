"""Errors of `secagg`: one class for each case that a caller can handle differently."""

from __future__ import annotations


class SecureSumError(Exception):
    """Base class of all errors of this package."""


class ConfigurationError(SecureSumError, ValueError):
    """The public parameters are unsafe or contradict each other; no session was created."""


class PolicyError(SecureSumError):
    """A sum does not meet this client's own policy; the client does not take part."""


class ConsentRefusedError(SecureSumError):
    """A party refuses to contribute to this total; it has sent nothing that the total needs."""


class SnapshotError(SecureSumError):
    """A stored session belongs to another party or session, or its bytes were changed; it was not restored."""


class ReceiptError(SecureSumError):
    """A receipt is not valid for this sum."""


class InvalidVectorError(SecureSumError, ValueError):
    """A vector does not fit the layout; nothing was sent."""


class LocalProtocolError(SecureSumError):
    """The caller used this session out of order, or passed what is no message or no party's number."""


class RemoteProtocolError(SecureSumError):
    """Another party sent a message that the protocol forbids.

    Args:
        reason: text of the error.
        peer: the party that sent the message, 0 for the server; None if unknown.

    >>> RemoteProtocolError("ROSTER is due, UNMASK_REQUEST came", peer=0)
    RemoteProtocolError('the server: ROSTER is due, UNMASK_REQUEST came')
    """

    def __init__(self, reason: str, *, peer: int | None = None) -> None:
        self.peer = peer
        whose = "the server" if peer == 0 else f"party {peer}"
        super().__init__(reason if peer is None else f"{whose}: {reason}")


class MalformedMessageError(RemoteProtocolError):
    """The bytes are no message of this version, session or layout.

    A frame of another session changes no state; a frame of this session with an invalid payload aborts a client.
    """


class RepeatedMessageError(RemoteProtocolError):
    """The message was processed before. It changes no state; resend the stored answer if there is one."""


class TooFewSurvivorsError(SecureSumError):
    """Fewer parties answered than the sum needs; no sum is released.

    Args:
        stage: the round with too few answers.
        needed: number of answers needed.
        came: number of answers received.
        cohort: number of parties asked.
        advice: what to do; a caller that knows why parties did not answer says it.
    """

    def __init__(
        self,
        *,
        stage: str,
        needed: int,
        came: int,
        cohort: int,
        advice: str = "Start a new session with the parties that are reachable; one that refused logged why",
    ) -> None:
        self.stage, self.needed, self.came, self.cohort = stage, needed, came, cohort
        super().__init__(
            f"{stage}: {came} of {cohort} parties answered and {needed} are needed; no sum is released. {advice}"
        )


class HelperMissingError(SecureSumError):
    """A helper or key holder that the sum needs did not answer; no part of a total is released.

    Args:
        missing: the helpers or key holders that did not answer, or were excluded.
        needed: number that must answer; None for all.
        n_more: how many of the missing must answer; None for all.
        advice: as in ``TooFewSurvivorsError``.
    """

    def __init__(
        self,
        *,
        missing: tuple[int, ...],
        needed: int | None = None,
        n_more: int | None = None,
        advice: str = "Reach them and start a new session",
    ) -> None:
        self.missing, self.needed, self.n_more = missing, needed, len(missing) if n_more is None else n_more
        who = "every helper" if needed is None else f"{needed} helpers"
        super().__init__(
            f"{who} must answer, and {', '.join(map(str, missing))} did not; no total is released. {advice}"
        )


class HelperDisputeError(SecureSumError):
    """Helpers with the same seeds sent different sums of masks, and too few of them agree; no total is released.

    Args:
        disputes: each pair of helpers that differ; at least one of each pair is malicious.
        needed: number of helpers that must send the same sum.
    """

    def __init__(self, *, disputes: tuple[tuple[int, int], ...], needed: int) -> None:
        self.disputes = disputes
        pairs = ", ".join(f"{one} and {other}" for one, other in disputes) or "none that answered"
        super().__init__(
            f"{needed} helpers must give the same sum of masks, and these differ: {pairs}; no total is released. "
            "One of each pair is malicious: find out which, and start a new session without it"
        )


class SumOutOfBoundsError(SecureSumError):
    """The total is outside its public bound: masks did not cancel, or a client exceeded its bound."""
