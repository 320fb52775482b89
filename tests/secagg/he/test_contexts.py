"""Keys where they belong: public contexts hold no secret, and neither kind passes for the other."""

from __future__ import annotations

import importlib
import sys

import pytest
from support.extras import needs

import secagg
from secagg.encryption import choose_parameters, generate_contexts
from secagg.encryption.schemes import SchemeName
from secagg.encryption.seal import load_public, load_secret, tenseal
from secagg.errors import ConfigurationError
from secagg.layout import Layout

LAYOUT = Layout.of([("s", 20, 2**20)])


@pytest.mark.parametrize("scheme", ["bfv", "ckks"])
class TestContexts:
    @pytest.fixture(autouse=True)
    def _has_tenseal(self) -> None:
        needs("tenseal")

    def test_the_public_context_holds_no_secret_key(self, scheme: SchemeName) -> None:
        keys = generate_contexts(choose_parameters(LAYOUT, 5, scheme=scheme))
        public, secret = (tenseal().context_from(data) for data in (keys.public_context, keys.secret_context))
        assert not public.is_private()
        assert not public.has_secret_key()
        assert not public.has_relin_keys()
        assert secret.is_private()
        assert len(keys.public_context) < len(keys.secret_context)

    def test_neither_kind_passes_for_the_other(self, scheme: SchemeName) -> None:
        parameters = choose_parameters(LAYOUT, 5, scheme=scheme)
        keys = generate_contexts(parameters)
        with pytest.raises(ConfigurationError, match="a public context is needed and this one holds the secret key"):
            load_public(parameters, keys.secret_context)
        with pytest.raises(ConfigurationError, match="a secret context is needed to decrypt and this one is public"):
            load_secret(parameters, keys.public_context)

    def test_a_context_of_other_parameters_is_refused(self, scheme: SchemeName) -> None:
        parameters = choose_parameters(LAYOUT, 5, scheme=scheme)
        other = choose_parameters(Layout.of([("s", 20, 2**30)]), 5, scheme=scheme)
        with pytest.raises(ConfigurationError, match="of other parameters than the session's"):
            load_public(other, generate_contexts(parameters).public_context)

    @pytest.mark.parametrize("broken", [b"", b"\0" * 50, b"x" * 10_000, b"\x0a" * (1 << 20)])
    def test_what_is_no_context_is_refused(self, scheme: SchemeName, broken: bytes) -> None:
        parameters = choose_parameters(LAYOUT, 5, scheme=scheme)
        with pytest.raises(ConfigurationError, match=r"no TenSEAL context|takes 1 to"):
            load_public(parameters, broken)

    def test_a_ring_that_nobody_asked_for_is_refused_before_its_tables_are_built(
        self, scheme: SchemeName, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        parameters = choose_parameters(LAYOUT, 5, scheme=scheme)
        large = tenseal().context(
            tenseal().SCHEME_TYPE.BFV,
            poly_modulus_degree=32768,
            plain_modulus=786433,
            coeff_mod_bit_sizes=[60] * 14,
            n_threads=1,
        )
        data = large.serialize(False, False, False, False)
        assert len(data) < 130
        load_public(parameters, generate_contexts(parameters).public_context)
        monkeypatch.setattr(tenseal(), "context_from", None)
        with pytest.raises(ConfigurationError, match="of other parameters"):
            load_public(parameters, data)

    def test_a_damaged_context_is_refused(self, scheme: SchemeName) -> None:
        parameters = choose_parameters(LAYOUT, 5, scheme=scheme)
        data = generate_contexts(parameters).public_context
        for damaged in (data[:-1], data[: len(data) // 2], data[:30] + b"\xff" * 30 + data[60:]):
            with pytest.raises(ConfigurationError):
                load_public(parameters, damaged)


def test_without_tenseal_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tenseal", None)
    monkeypatch.setitem(sys.modules, "tenseal.sealapi", None)
    with pytest.raises(ConfigurationError, match=r"pip install '\.\[he\]'"):
        tenseal()


def test_the_package_imports_without_tenseal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tenseal", None)
    monkeypatch.setattr(secagg, "encryption", secagg.encryption)  # importing it anew puts another one there
    for name in [name for name in sys.modules if name.startswith("secagg.encryption")]:
        monkeypatch.delitem(sys.modules, name)
    assert importlib.import_module("secagg.encryption").choose_parameters(LAYOUT, 3).scheme == "bfv"
