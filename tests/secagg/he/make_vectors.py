"""Writes known answers of encrypted sums: `python tests/secagg/he/make_vectors.py`.

SEAL draws its randomness from the operating system, so no file is written twice the same, and none is compared: that
today's code decrypts what an earlier one encrypted is the test. The secret keys in them are nobody's.
"""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))  # else tests/secagg stands before secagg

import numpy as np

from secagg.encryption import choose_parameters, generate_contexts
from secagg.encryption.cipher import VectorCipher
from secagg.encryption.seal import tenseal
from secagg.layout import Layout
from secagg.ring import RingVector

VECTORS = Path(__file__).resolve().parent / "vectors"
LAYOUT = [("narrow", 40, 100), ("wide", 30, 2**40), ("widest", 3, 2**63 - 1)]
N_CLIENTS = 3


def known_answer(scheme: Any, masked: bool) -> dict[str, Any]:
    """A secret context, a sum of ciphertexts, and what it decrypts to."""
    layout = Layout.of(LAYOUT)
    parameters = choose_parameters(layout, N_CLIENTS, scheme=scheme, masked=masked)
    cipher = VectorCipher(layout=layout, parameters=parameters, n_clients=N_CLIENTS, masked=masked)
    keys, total = generate_contexts(parameters), cipher.empty_sum()
    rng, words = np.random.default_rng(5), RingVector.zeros(layout)
    for _ in range(N_CLIENTS):
        if masked:
            vector = RingVector.from_bytes(layout, rng.bytes(layout.wire_bytes))
        else:
            share = np.concatenate([np.full(s.size, s.bound // N_CLIENTS) for s in layout.segments])
            vector = RingVector.encode(layout, rng.integers(-share, share, endpoint=True))
        total.add(cipher.encrypt(vector, keys.public_context))
        words.add(vector)
    return {
        "about": f"The sum of {N_CLIENTS} vectors of {'ring words under masks' if masked else 'integers'}.",
        "made_with": f"TenSEAL {tenseal().__version__}",
        "layout": [list(segment) for segment in LAYOUT],
        "n_clients": N_CLIENTS,
        "masked": masked,
        "parameters": {
            "scheme": parameters.scheme,
            "degree": parameters.degree,
            "prime_bits": list(parameters.prime_bits),
            "n_clients": parameters.n_clients,
            "slot_bound": parameters.slot_bound,
            "slot_load": parameters.slot_load,
            "plain_modulus": parameters.plain_modulus,
            "scale_bits": parameters.scale_bits,
        },
        "total": words.to_bytes().hex(),
        "encrypted_sum": base64.b64encode(total.to_bytes()).decode(),
        "secret_context": base64.b64encode(keys.secret_context).decode(),
    }


if __name__ == "__main__":
    VECTORS.mkdir(exist_ok=True)
    for name, scheme, masked in (("he_bfv", "bfv", False), ("he_ckks_masked", "ckks", True)):
        (VECTORS / f"{name}.json").write_text(json.dumps(known_answer(scheme, masked), indent=1) + "\n")
