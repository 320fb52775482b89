"""What `explain` says of a committee sum is what a run does."""

from __future__ import annotations

import numpy as np
import pytest
from support.parties import signed as with_identities

from secagg import CommitteeSum, Layout
from secagg.committee.explain import client_cost, helper_cost

CLIENTS = (2, 3, 5, 8)
LAYOUT = Layout.of([("gram", 300, 2**40), ("count", 1, 1000)])


@pytest.mark.parametrize("n_helpers", [1, 3])
@pytest.mark.parametrize("signed", [False, True])
def test_the_stated_costs_are_the_measured_ones(n_helpers: int, signed: bool) -> None:
    parties = CommitteeSum.generate(layout=LAYOUT, clients=CLIENTS, session_id=bytes(16), n_helpers=n_helpers)
    config = parties.protocol
    assert isinstance(config, CommitteeSum)
    if signed:
        parties = with_identities(parties)
        config = parties.protocol
    server = parties.server()
    for party in CLIENTS:
        message = parties.client(party, np.zeros(LAYOUT.size, dtype=np.int64)).start()
        assert message is not None
        server.receive(party, message)
        assert (client_cost(config).messages_up, client_cost(config).bytes_up) == (1, len(message))
        assert client_cost(config).bytes_down == 0
    for party, request in server.close_round().items():
        answer = parties.helper(party).receive(request)
        assert answer is not None
        assert (helper_cost(config).bytes_up, helper_cost(config).bytes_down) == (len(answer), len(request))
    text = config.explain()
    assert f"{client_cost(config).bytes_up} bytes ({LAYOUT.wire_bytes} of them the vector)" in text
    assert f"a helper sends 1 message, {helper_cost(config).bytes_up} bytes" in text
    assert f"at least {config.survivors_needed} clients" in text
    assert ("SEMI-HONEST" in text) is not signed
    assert ("colludes with all helpers" in text) is (n_helpers > 1)
    assert ("colludes with the helper" in text) is (n_helpers == 1)
    assert "and while at most 1 of the 4 clients collude with the server" in text
