"""Every error that `secagg` raises on purpose, one leaf for each thing a caller can act on."""

from __future__ import annotations


class SecureSumError(Exception):
    """Base of all errors of this package."""


class ConfigurationError(SecureSumError, ValueError):
    """The public parameters are unsafe or contradict each other; no session was made."""


class PolicyError(SecureSumError):
    """A sum falls short of what this client's own policy demands; it takes no part."""


class ConsentRefusedError(SecureSumError):
    """A party does not let its vector, or its help, into this total; it has said nothing that would."""


class SnapshotError(SecureSumError):
    """A stored session belongs to another party or session, or its bytes were changed; it is not restored."""


class ReceiptError(SecureSumError):
    """A receipt does not vouch for this sum."""


class InvalidVectorError(SecureSumError, ValueError):
    """A vector does not fit the layout; nothing was sent."""


class LocalProtocolError(SecureSumError):
    """The caller of this session acted out of order."""


class RemoteProtocolError(SecureSumError):
    """Somebody sent what the protocol forbids.

    Args:
        reason: what was needed, what came, what to do.
        peer: the party that sent it, or None when the bytes do not even tell.
    """

    def __init__(self, reason: str, *, peer: int | None = None) -> None:
        self.peer = peer
        super().__init__(reason if peer is None else f"party {peer}: {reason}")


class MalformedMessageError(RemoteProtocolError):
    """Bytes that are no message of this version, session or layout.

    A frame that does not belong here changes no state; a frame that does, with a broken payload, aborts a client.
    """


class RepeatedMessageError(RemoteProtocolError):
    """A message that was already taken. It changes no state; resend the stored answer if there is one."""


class TooFewSurvivorsError(SecureSumError):
    """Fewer parties answered than the sum needs; no sum is released.

    Args:
        stage: the round that came up short.
        needed: how many answers it needs.
        came: how many arrived.
        cohort: how many were asked.
    """

    def __init__(self, *, stage: str, needed: int, came: int, cohort: int) -> None:
        self.stage, self.needed, self.came, self.cohort = stage, needed, came, cohort
        super().__init__(
            f"{stage}: {came} of {cohort} parties answered and {needed} are needed; no sum is released. "
            "Start a new session with the parties that are reachable"
        )


class HelperMissingError(SecureSumError):
    """A party beside the clients that the sum needs did not answer; no part of a total is released.

    Args:
        missing: the helpers or key holders that did not answer, or were put aside.
        needed: how many must answer, where not all of them have to.
    """

    def __init__(self, *, missing: tuple[int, ...], needed: int | None = None) -> None:
        self.missing = missing
        who = "every helper" if needed is None else f"{needed} helpers"
        super().__init__(
            f"{who} must answer, and {', '.join(map(str, missing))} did not; no total is released. "
            "Reach them and start a new session"
        )


class HelperDisputeError(SecureSumError):
    """Helpers that hold the same seeds gave different sums of masks, and too few others say who is right.

    Args:
        disputes: each pair that differs, of which one lies; whoever differs from more others than may lie does.
        needed: how many must give the same sum.
    """

    def __init__(self, *, disputes: tuple[tuple[int, int], ...], needed: int) -> None:
        self.disputes = disputes
        pairs = ", ".join(f"{one} and {other}" for one, other in disputes) or "none that answered"
        super().__init__(
            f"{needed} helpers must give the same sum of masks, and these differ: {pairs}; no total is released. "
            "One of each pair lied: find out which, and start a new session without it"
        )


class SumOutOfBoundsError(SecureSumError):
    """The total lies outside its public bound, so masks did not cancel or a client broke its bound."""
