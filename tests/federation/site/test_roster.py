"""Rosters that are none: what is said of each."""

from __future__ import annotations

from pathlib import Path

import pytest

from federation.site.errors import SiteFileError
from federation.site.roster import Roster

KEY = "ab" * 32


@pytest.mark.parametrize(
    ("tables", "reason"),
    [
        ("[clients]\n", "needs clients and lists none"),
        (f'[clients]\n1 = "{KEY}"\n[key_holder]\n201 = "{KEY}"\n202 = "{KEY}"', "names one party, not 2; leave one"),
        (f'[clients]\n1 = "{KEY}"\n[helpers]\n1 = "{KEY}{KEY}"', "number of its own; 1 stands in two tables"),
        (f'[clients]\none = "{KEY}"', "a number of 1 to 2.32 - 1, not 'one'"),
        (f'[clients]\n0 = "{KEY}"', "a number of 1 to 2.32 - 1, not '0'"),
        (f'[clients]\n{1 << 32} = "{KEY}"', "a number of 1 to 2.32 - 1"),
        (f'[clients]\n1 = "{KEY[:-1]}"', "public key of party 1 must be 64 hexadecimal digits"),
        (f'[clients]\n1 = "{KEY}{KEY}"', "public key of party 1 must be 64 hexadecimal digits"),
        (f'[clients]\n1 = "{KEY}"\n[helpers]\n7 = "{KEY}"', "public key of party 7 must be 128 hexadecimal digits"),
        ("[clients]\n1 = 7", "public key of party 1 must be 64 hexadecimal digits"),
        (f'[clients]\n1 = "{KEY}"\n[client]\n', "no place for client"),
        ("clients = 7", "needs clients as a table, not a whole number"),
        (f'helpers = 7\n[clients]\n1 = "{KEY}"', "needs helpers as a table, not a whole number"),
    ],
)
def test_a_bad_roster_is_refused(tmp_path: Path, tables: str, reason: str) -> None:
    path = tmp_path / "roster.toml"
    path.write_text(f'server = "{KEY}"\n{tables}\n')
    with pytest.raises(SiteFileError, match=reason):
        Roster.read(path)


def test_the_server_needs_a_key_too(tmp_path: Path) -> None:
    (tmp_path / "roster.toml").write_text(f'server = "me"\n[clients]\n1 = "{KEY}"\n')
    with pytest.raises(SiteFileError, match="public key of the server must be 64 hexadecimal digits"):
        Roster.read(tmp_path / "roster.toml")
