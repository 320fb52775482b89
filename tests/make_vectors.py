"""Writes the test vectors of masked and committee sums: `python tests/make_vectors.py`; `--check` only compares.

The package ships copies of some (`secagg/vectors`), which are written with them.

Parameters and plain vectors are chosen here; entropy comes from seeded streams and is written down as it is drawn; each
message is the one that `secagg` says. A second implementation says the same in `tests/secagg/test_vectors.py` and
`tests/secagg/committee/test_vectors.py`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # else tests/secagg stands before secagg
sys.path.append(str(Path(__file__).resolve().parent / "slow_implementation"))
sys.path.append(str(Path(__file__).resolve().parent / "vectors"))

import committee_vectors
import mean_vectors
import numpy as np
from bad_messages import all_bad_messages
from slow_driver import run
from vector_parts import SMALL, Recorded, every_width, lines_of, vectors_for

from secagg.conformance import SHIPPED, masked_series, masked_sum, receipted_sum
from secagg.entropy import InsecureSeededEntropy
from secagg.layout import Layout
from secagg.masked.series import SeriesClient, SeriesServer
from secagg.primitives.identity import IdentityKey
from secagg.sums import PartySecrets

VECTORS = Path(__file__).resolve().parent / "vectors"
Json = dict[str, Any]
SEED = 4


def fixed(label: str, n_bytes: int) -> bytes:
    """Public bytes for a session id, a context or a graph seed."""
    return InsecureSeededEntropy(SEED, label)(n_bytes)


def parameters(
    name: str,
    clients: Sequence[int],
    threshold: int,
    *,
    layout: Sequence[tuple[Any, ...]] = SMALL,
    degree: int = 0,
    assumptions: Json | None = None,
    is_authenticated: bool = False,
    **more: str,
) -> tuple[Json, dict[int, IdentityKey]]:
    """Public parameters in JSON, and the signing keys, the server's under 0, if there are identities."""
    keys = {p: IdentityKey(fixed(f"{name} identity {p}", 32)) for p in [0, *clients]} if is_authenticated else {}
    return {
        "layout": [list(segment) for segment in layout],
        "clients": list(clients),
        "session_id": fixed(f"{name} session", 16).hex(),
        "context": fixed(f"{name} context", 32).hex(),
        "threshold": threshold,
        "degree": degree,
        "graph_seed": fixed(f"{name} graph", 16).hex() if degree else "",
        "assumptions": assumptions,
        "identities": [keys[p].public.hex() for p in clients] if keys else [],
        "server_identity": keys[0].public.hex() if keys else "",
        **more,
    }, keys


def one_sum(
    about: str, name: str, known: Json, keys: Mapping[int, IdentityKey], messages_sent: Mapping[int, int]
) -> Json:
    """The vector of one sum."""
    config, entropy = masked_sum(known), {p: Recorded(SEED, f"{name} client {p}") for p in known["clients"]}
    protocol = receipted_sum(known)
    vectors = vectors_for(name, known["layout"], known["clients"])
    own = {p: PartySecrets(identity=keys.get(p)) for p in known["clients"]}
    clients = {
        p: protocol.client(p, np.array(vectors[p], dtype=np.int64), entropy=entropy[p], secrets=own[p])
        for p in known["clients"]
    }
    server: Any = protocol.server(secrets=PartySecrets(identity=keys.get(0)))
    said = run(clients, server, messages_sent)
    assert server.result is not None
    vector = {
        "about": about,
        "parameters": known,
        "identity_secrets": {str(p): key.secret.hex() for p, key in keys.items()},
        "messages_sent": {str(p): count for p, count in messages_sent.items()},
        "vectors": {str(p): vectors[p] for p in known["clients"]},
        "entropy": {str(p): entropy[p].drawn.hex() for p in known["clients"]},
        "neighbours": {str(p): list(config.neighbours(p)) for p in known["clients"]},
        "digest": config.digest.hex(),
        "setup_digest": config.setup_digest.hex(),
        "messages": lines_of(said),
        "survivors": list(server.result.survivors),
        "total": server.result.total.tolist(),
    }
    if "signed_by" in known:
        vector["receipt"] = server.receipt.to_bytes().hex()
    return vector


def series_of_two(name: str, *, is_authenticated: bool) -> Json:
    """The vector of a series of two sums."""
    about = "Two sums of one cohort; in the second a client sends its masked vector and vanishes."
    clients = (2, 5, 9, 11)
    known, keys = parameters(name, clients, 3, is_authenticated=is_authenticated)
    own = {p: PartySecrets(identity=keys.get(p)) for p in [0, *clients]}
    known = {k: v for k, v in known.items() if k not in ("layout", "session_id", "context")}
    known["series_id"] = fixed("series id", 16).hex()
    series, entropy = masked_series(known), {p: Recorded(SEED, f"{name} client {p}") for p in clients}
    sessions = {p: SeriesClient(series, p, secrets=own[p], entropy=entropy[p]) for p in clients}
    server = SeriesServer(series, secrets=own[0])
    sums = []
    for index, (layout, sent) in enumerate([(SMALL, {}), ([("other", 2, 70_000)], {9: 1})]):
        vectors, context = vectors_for(f"{name} {index}", layout, clients), fixed(f"series context {index}", 32)
        shape = Layout.of(layout, sum_fits=True)
        current = {p: s.begin_sum(shape, context, np.array(vectors[p])) for p, s in sessions.items()}
        at_server = server.begin_sum(shape, context)
        said = run(current, at_server, sent)
        assert at_server.result is not None
        sums.append(
            {
                "layout": [list(segment) for segment in layout],
                "context": context.hex(),
                "messages_sent": {str(p): count for p, count in sent.items()},
                "vectors": {str(p): vectors[p] for p in clients},
                "messages": lines_of(said),
                "survivors": list(at_server.result.survivors),
                "total": at_server.result.total.tolist(),
            }
        )
    drawn = {str(p): entropy[p].drawn.hex() for p in clients}
    return {
        "about": about,
        "parameters": known,
        "identity_secrets": {str(p): key.secret.hex() for p, key in keys.items()},
        "entropy": drawn,
        "digest": series.digest.hex(),
        "sums": sums,
    }


def all_scenarios() -> dict[str, Json]:
    """Good runs by file name."""
    scenarios = {}

    def add(
        name: str, about: str, clients: Sequence[int], threshold: int, sent: Mapping[int, int], **more: Any
    ) -> None:
        known, keys = parameters(name, clients, threshold, **more)
        scenarios[f"{name}.json"] = one_sum(about, name, known, keys, sent)

    add("complete_no_dropouts", "Everybody stays.", (2, 5, 9), 2, {})
    bounded = [("gram", 3, 1_000, 400), ("counts", 2, 100)]
    add("client_bounds", "A segment states a bound for one client.", (2, 5, 9), 2, {}, layout=bounded)
    four = (1, 4, 6, 70_000)
    for stage, sent in (("keys", 0), ("shares", 1), ("input", 2), ("unmasking", 3)):
        about = f"A client vanishes after {sent} messages, before its {stage}."
        add(f"complete_dropout_before_{stage}", about, four, 3, {6: sent})
    about = "With identities; one client vanishes before its masked vector, one after it signed the survivors."
    add("authenticated_dropouts", about, (2, 5, 9, 11, 2**32 - 1), 3, {9: 2, 11: 4}, is_authenticated=True)
    about = "With receipts that clients countersign; one client vanishes before its masked vector."
    add("receipted", about, (2, 5, 9, 11, 2**32 - 1), 3, {9: 2}, is_authenticated=True, signed_by="clients")
    promised = {
        "corruption": 0.1,
        "dropout": 0.2,
        "malicious_server": False,
        "security_bits": 40.0,
        "correctness_bits": 40.0,
    }
    about = "A Harary graph of degree 6; one client vanishes before its shares, one before its vector, one after it."
    sent = {104: 1, 108: 2, 111: 3}
    add("sparse_dropouts", about, range(101, 113), 4, sent, degree=6, assumptions=promised)
    about = "An expander of degree 6 with identities; one client vanishes before its shares."
    promised = {**promised, "corruption": 0.0, "dropout": 1 / 11, "malicious_server": True}
    add("authenticated_sparse", about, range(201, 212), 5, {204: 1}, degree=6, assumptions=promised,
        is_authenticated=True)  # fmt: skip
    add("every_width", "Entries of 1 to 8 bytes, totals at both ends of the bound.", (1, 2, 3), 2, {3: 2},
        layout=every_width("one beyond a byte"))  # fmt: skip
    scenarios["series_of_two.json"] = series_of_two("series", is_authenticated=False)
    scenarios["series_signed.json"] = series_of_two("signed series", is_authenticated=True)
    return scenarios


def to_text(vector: Json) -> str:
    """JSON with one message a line."""

    def text(value: Any, indent: int) -> str:
        pad, inner = " " * indent, " " * (indent + 1)
        if isinstance(value, dict) and len(json.dumps(value)) > 110 and "sender" not in value:
            return (
                "{\n"
                + ",\n".join(f"{inner}{json.dumps(k)}: {text(v, indent + 1)}" for k, v in value.items())
                + (f"\n{pad}}}")
            )
        if isinstance(value, list) and value and isinstance(value[0], dict):
            return "[\n" + ",\n".join(inner + text(item, indent + 1) for item in value) + f"\n{pad}]"
        return json.dumps(value)

    return text(vector, 0) + "\n"


def all_files() -> dict[str, str]:
    """Every vector's text by its path below ``tests/vectors``."""
    scenarios = all_scenarios()
    bad = {f"bad/{name}.json": vector for name, vector in all_bad_messages(scenarios)}
    of_committees = {f"committee/{name}": text for name, text in committee_vectors.all_files().items()}
    of_means = {f"mean/{name}": text for name, text in mean_vectors.all_files().items()}
    return {path: to_text(vector) for path, vector in {**scenarios, **bad}.items()} | of_committees | of_means


def differences(wanted: Mapping[str, str]) -> list[str]:
    """Which files are missing, needless or different."""
    present = {str(path.relative_to(VECTORS)): path for path in VECTORS.rglob("*.json")}
    changed = [name for name in wanted.keys() & present.keys() if present[name].read_text() != wanted[name]]
    return sorted([*changed, *(wanted.keys() ^ present.keys())])


def shipped_differences() -> list[str]:
    """Which copies that the package ships are not the files here."""
    copies = {str(path.relative_to(SHIPPED)): path for path in sorted(SHIPPED.rglob("*.json"))}
    return [name for name, path in copies.items() if path.read_bytes() != (VECTORS / name).read_bytes()]


def main(write: Callable[[str], Any] = print) -> int:
    """Write the vectors, or compare them; 1 if they differ."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare with the files instead of writing them")
    wanted, found = all_files(), 0
    if parser.parse_args().check:
        for name in differences(wanted):
            write(f"differs from what is computed now: tests/vectors/{name}")
            found = 1
        for name in shipped_differences():
            write(f"is no copy of tests/vectors: secagg/vectors/{name}")
            found = 1
        return found
    for path in set(VECTORS.rglob("*.json")) - {VECTORS / name for name in wanted}:
        path.unlink()
    for name, text in wanted.items():
        (VECTORS / name).parent.mkdir(parents=True, exist_ok=True)
        (VECTORS / name).write_text(text)
    for name in shipped_differences():
        (SHIPPED / name).write_text(wanted[name])
    return found


if __name__ == "__main__":
    sys.exit(main())
