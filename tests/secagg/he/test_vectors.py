"""Known answers: sums that were encrypted once decrypt to the integers that were written down beside them."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from support.extras import needs

from secagg.encryption import EncryptionParameters
from secagg.encryption.cipher import VectorCipher
from secagg.errors import MalformedMessageError, SumOutOfBoundsError
from secagg.layout import Layout

needs("tenseal")

VECTORS = {
    path.stem: json.loads(path.read_text()) for path in sorted((Path(__file__).parent / "vectors").glob("he_*.json"))
}
NAMES = pytest.mark.parametrize("name", ["he_bfv", "he_ckks_masked"])


def read(name: str) -> tuple[dict[str, Any], VectorCipher, bytes, bytes]:
    """The vector, how its sum travels, the encrypted sum, the secret context."""
    vector = VECTORS[name]
    parameters = EncryptionParameters(
        **vector["parameters"] | {"prime_bits": tuple(vector["parameters"]["prime_bits"])}
    )
    cipher = VectorCipher(
        layout=Layout.of(map(tuple, vector["layout"])),
        parameters=parameters,
        n_clients=vector["n_clients"],
        masked=vector["masked"],
    )
    return vector, cipher, base64.b64decode(vector["encrypted_sum"]), base64.b64decode(vector["secret_context"])


@NAMES
def test_it_decrypts_to_the_known_answer(name: str) -> None:
    vector, cipher, encrypted_sum, secret_context = read(name)
    decrypted = cipher.decrypt(encrypted_sum, secret_context)
    assert decrypted.vector.to_bytes().hex() == vector["total"]
    assert decrypted.error < cipher.parameters.error_bound * (2 if cipher.parameters.scheme == "bfv" else 1)


@NAMES
def test_another_sum_has_another_answer(name: str) -> None:
    """Twice the ciphertexts are twice the integers, or too much for their slots; a cut one is refused."""
    vector, cipher, encrypted_sum, secret_context = read(name)
    with pytest.raises(MalformedMessageError):
        cipher.decrypt(encrypted_sum[:-1], secret_context)
    doubled = cipher.empty_sum()
    doubled.add(encrypted_sum)
    doubled._taken.clear()
    doubled.add(encrypted_sum)
    try:
        answer = cipher.decrypt(doubled.to_bytes(), secret_context).vector.to_bytes().hex()
    except SumOutOfBoundsError:
        return
    assert answer != vector["total"]
