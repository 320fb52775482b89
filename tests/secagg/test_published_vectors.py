"""Published vectors for signatures and for every primitive of the slow implementation; what the library's others have
stands beside them in tests/secagg/primitives.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.append(str(Path(__file__).resolve().parents[1] / "slow_implementation"))

import slow_graph
import slow_shamir
from slow_curves import L, ed25519_public, ed25519_sign, ed25519_verifies, x25519
from slow_symmetric import ctr_keystream, hkdf, open_sealed, seal

from secagg.masked.expander import expander
from secagg.masked.graph import expander_neighbours, harary_neighbours
from secagg.primitives import sealing, shamir
from secagg.primitives.identity import IdentityKey, is_signed

keys = st.binary(min_size=32, max_size=32)

RFC_8032 = [  # section 7.1, tests 1 to 3
    (
        "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe2465"
        "5141438e7a100b",
    ),
    (
        "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        "72",
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb0"
        "0d291612bb0c00",
    ),
    (
        "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
        "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
        "af82",
        "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc0"
        "27beceea1ec40a",
    ),
]

RFC_7748 = [  # section 5.2
    (
        "a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4",
        "e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c",
        "c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552",
    ),
    (
        "4b66e9d4d1b4673c5ad22691957d6af5c11b6421e0ea01d42ca4169e7918ba0d",
        "e5210f12786811d3f4b7959d0538ae2c31dbe7106fc03c3efc4cd549c715a493",
        "95cbde9476e8907d7aade45cb4b873f88b595a68799fa152e6f8f7647aac7957",
    ),
]

RFC_5869 = [  # appendix A
    (
        "0b" * 22,
        "000102030405060708090a0b0c",
        "f0f1f2f3f4f5f6f7f8f9",
        "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865",
    ),
    (
        bytes(range(0x50)).hex(),
        bytes(range(0x60, 0xB0)).hex(),
        bytes(range(0xB0, 0x100)).hex(),
        "b11e398dc80327a1c8e7f78c596a49344f012eda2d4efad8a050cc4c19afa97c"
        "59045a99cac7827271cb41c65e590e09da3275600c2f09b8367793a9aca3db71cc30c58179ec3e87c14c01d5c1f3434f1d87",
    ),
    ("0b" * 22, "", "", "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8"),
]

_KEY = "feffe9928665731c6d6a8f9467308308" * 2
_TEXT = (
    "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a721c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657"
    "ba637b391aafd255"
)
_CIPHER = (
    "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0a"
    "bcc9f662898015ad"
)
GCM = [  # McGrew and Viega, The Galois/Counter Mode of Operation, appendix B, test cases 13 to 16
    ("00" * 32, "00" * 12, "", "", "", "530f8afbc74536b9a963b4f1c4cb738b"),
    (
        "00" * 32,
        "00" * 12,
        "00" * 16,
        "",
        "cea7403d4d606b6e074ec5d3baf39d18",
        "d0d1c8a799996bf0265b98b5d48ab919",
    ),
    (_KEY, "cafebabefacedbaddecaf888", _TEXT, "", _CIPHER, "b094dac5d93471bdec1a502270e3cc6c"),
    (
        _KEY,
        "cafebabefacedbaddecaf888",
        _TEXT[:120],
        "feedfacedeadbeeffeedfacedeadbeefabaddad2",
        _CIPHER[:120],
        "76fc6ece0f4e1768cddf8853bb2d551b",
    ),
]


@pytest.mark.parametrize(("secret", "public", "message", "signature"), RFC_8032, ids=["1", "2", "3"])
def test_rfc_8032(secret: str, public: str, message: str, signature: str) -> None:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key, text = bytes.fromhex(secret), bytes.fromhex(message)
    assert ed25519_public(key).hex() == IdentityKey(key).public.hex() == public
    assert ed25519_sign(key, text).hex() == Ed25519PrivateKey.from_private_bytes(key).sign(text).hex() == signature
    assert ed25519_verifies(bytes.fromhex(public), text, bytes.fromhex(signature))
    assert not ed25519_verifies(bytes.fromhex(public), text + b"\0", bytes.fromhex(signature))


@pytest.mark.parametrize(("scalar", "u", "result"), RFC_7748, ids=["1", "2"])
def test_rfc_7748(scalar: str, u: str, result: str) -> None:
    assert x25519(bytes.fromhex(scalar), bytes.fromhex(u)).hex() == result


def test_rfc_7748_iterated() -> None:
    """Section 5.2: the ladder fed to itself once; a thousand times in the slow sweep."""
    assert iterated(1) == "422c8e7a6227d7bca1350b3e2bb7279f7897b87bb6854b783c60e80311ae3079"


@pytest.mark.slow
def test_rfc_7748_iterated_a_thousand_times() -> None:
    assert iterated(1000) == "684cf59ba83309552800ef566f2f4d3c1c3887c49360e3875f2eb94d99532c51"


def iterated(times: int) -> str:
    k = u = (9).to_bytes(32, "little")
    for _ in range(times):
        k, u = x25519(k, u), k
    return k.hex()


@pytest.mark.parametrize(("secret", "salt", "info", "output"), RFC_5869, ids=["A.1", "A.2", "A.3"])
def test_rfc_5869(secret: str, salt: str, info: str, output: str) -> None:
    arguments = {"salt": bytes.fromhex(salt), "info": bytes.fromhex(info), "n_bytes": len(output) // 2}
    assert hkdf(bytes.fromhex(secret), **arguments).hex() == output


def test_nist_sp_800_38a() -> None:
    """F.5.5, CTR-AES256.Encrypt: the four output blocks."""
    key = bytes.fromhex("603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4")
    stream = ctr_keystream(key, 64, 0xF0F1F2F3F4F5F6F7F8F9FAFBFCFDFEFF)
    assert stream.hex() == (
        "0bdf7df1591716335e9a8b15c860c5025a6e699d536119065433863c8f657b94"
        "1bc12c9c01610d5d0d8bd6a3378eca622956e1c8693536b1bee99c73a31576b6"
    )


@pytest.mark.parametrize(("key", "nonce", "text", "associated", "cipher", "tag"), GCM, ids=["13", "14", "15", "16"])
def test_gcm(key: str, nonce: str, text: str, associated: str, cipher: str, tag: str) -> None:
    arguments = bytes.fromhex(nonce), bytes.fromhex(text), bytes.fromhex(associated)
    sealed = bytes.fromhex(nonce + cipher + tag)
    assert seal(bytes.fromhex(key), *arguments) == sealed
    assert open_sealed(bytes.fromhex(key), sealed, arguments[2]) == arguments[1]
    assert sealing.open_sealed(bytes.fromhex(key), sealed, arguments[2]) == arguments[1]


# Wycheproof's kind of cases, written here: what must not verify or open

_SIGNER = IdentityKey(bytes.fromhex(RFC_8032[0][0]))
_GOOD = _SIGNER.sign("label", b"part")
_S = int.from_bytes(_GOOD[32:], "little")
_FORGED = {
    "empty": b"",
    "short": _GOOD[:-1],
    "long": _GOOD + b"\0",
    "zeros": bytes(64),
    "all ones": b"\xff" * 64,
    "R of zeros": bytes(32) + _GOOD[32:],
    "S of zero": _GOOD[:32] + bytes(32),
    "S + L": _GOOD[:32] + (_S + L).to_bytes(32, "little"),
    "S + 2^252 L's top bits": _GOOD[:32] + ((_S + 8 * L) % 2**256).to_bytes(32, "little"),
    "-S": _GOOD[:32] + (L - _S).to_bytes(32, "little"),
    "R and S swapped": _GOOD[32:] + _GOOD[:32],
    "R with its sign changed": _GOOD[:31] + bytes([_GOOD[31] ^ 0x80]) + _GOOD[32:],
    "R not reduced": b"\xff" * 31 + b"\x7f" + _GOOD[32:],
}


@pytest.mark.parametrize("name", _FORGED)
def test_forged_signatures_do_not_verify(name: str) -> None:
    assert is_signed(_SIGNER.public, _GOOD, "label", b"part")
    assert not is_signed(_SIGNER.public, _FORGED[name], "label", b"part")
    statement = b"".join(len(p).to_bytes(8, "big") + p for p in (b"analytic-secagg/1", b"label", b"part"))
    assert ed25519_verifies(_SIGNER.public, statement, _GOOD)
    assert not ed25519_verifies(_SIGNER.public, statement, _FORGED[name])


@pytest.mark.parametrize("public", [b"", bytes(31), bytes(33), b"\xff" * 32, (2).to_bytes(32, "little")])
def test_no_identity_no_signature(public: bytes) -> None:
    """Another length, no reduced number, no point of the curve: nothing was signed, and nothing else is raised."""
    assert not is_signed(public, _GOOD, "label", b"part")


@given(st.integers(0, 8 * 64 - 1))
def test_every_bit_of_a_signature_counts(bit: int) -> None:
    changed = bytearray(_GOOD)
    changed[bit // 8] ^= 1 << bit % 8
    assert not is_signed(_SIGNER.public, bytes(changed), "label", b"part")


@pytest.mark.parametrize(
    "parts",
    [(b"par", b"t"), (b"part", b""), (b"",), (), (b"part" * 2,)],
    ids=["split", "more", "empty", "none", "twice"],
)
def test_statements_are_told_apart(parts: tuple[bytes, ...]) -> None:
    assert not is_signed(_SIGNER.public, _GOOD, "label", *parts)
    assert not is_signed(_SIGNER.public, _GOOD, "labe", b"lpart", *parts)


# The slow implementation against the library, piece by piece


@given(keys, st.data())
def test_shares_agree(secret: bytes, data: st.DataObject) -> None:
    points = data.draw(st.lists(st.integers(1, 2**20), min_size=1, max_size=6, unique=True))
    threshold = data.draw(st.integers(1, len(points)))
    drawn = data.draw(st.binary(min_size=49 * (threshold - 1), max_size=49 * (threshold - 1)))
    sources = [iter([drawn[i : i + 49] for i in range(0, len(drawn), 49)]) for _ in range(2)]
    shares = slow_shamir.split(secret, threshold, points, lambda _: next(sources[0]))
    assert shares == shamir.split(secret, threshold=threshold, points=points, entropy=lambda _: next(sources[1]))
    some = dict(data.draw(st.permutations(sorted(shares.items())))[:threshold])
    assert slow_shamir.combine(some) == shamir.combine(some) == secret


@given(st.integers(5, 60), st.binary(min_size=16, max_size=64), st.data())
def test_graphs_agree(n: int, seed: bytes, data: st.DataObject) -> None:
    clients = tuple(sorted(data.draw(st.sets(st.integers(1, 2**32 - 1), min_size=n, max_size=n))))
    degree = 2 * data.draw(st.integers(1, (n - 2) // 2))
    for party in clients:
        assert tuple(slow_graph.neighbours(clients, degree, seed, party)) == harary_neighbours(
            clients, degree, seed, party
        )
        if expander(n, degree) is not None:
            near = tuple(slow_graph.neighbours(clients, degree, seed, party, signed=True))
            assert near == expander_neighbours(clients, degree, seed, party)
