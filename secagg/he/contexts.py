"""TenSEAL contexts as bytes: generated once by the key holder, public for everybody else."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from secagg.errors import ConfigurationError
from secagg.he.parameters import EncryptionParameters


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextPair:
    """One key pair, for one session.

    Args:
        public_context: parameters and public key, for clients and server.
        secret_context: the same with the secret key, for the key holder only.
    """

    public_context: bytes = field(repr=False)
    secret_context: bytes = field(repr=False)


def generate_contexts(parameters: EncryptionParameters) -> ContextPair:
    """A fresh key pair. SEAL draws it from the operating system by itself; no ``Entropy`` is used."""
    ts = tenseal()
    scheme = ts.SCHEME_TYPE.BFV if parameters.scheme == "bfv" else ts.SCHEME_TYPE.CKKS
    context = ts.context(
        scheme,
        poly_modulus_degree=parameters.degree,
        plain_modulus=parameters.plain_modulus,
        coeff_mod_bit_sizes=list(parameters.all_prime_bits),
        n_threads=1,
    )
    if parameters.scheme == "ckks":
        context.global_scale = 2.0**parameters.scale_bits
    _check_parameters(context, parameters)
    keys = {"save_public_key": True, "save_galois_keys": False, "save_relin_keys": False}
    return ContextPair(
        public_context=context.serialize(save_secret_key=False, **keys),
        secret_context=context.serialize(save_secret_key=True, **keys),
    )


@lru_cache(maxsize=4)
def load_public(parameters: EncryptionParameters, data: bytes) -> Any:
    """The TenSEAL context of a public key. Kept for the next client of a simulation.

    Raises:
        ConfigurationError: it holds the secret key, has other parameters, or is no context.
    """
    context = _load(parameters, data)
    if context.is_private():
        raise ConfigurationError(
            "a public context is needed and this one holds the secret key, which only the key holder may have; "
            "hand out ContextPair.public_context, and draw new keys if this one has left the key holder"
        )
    return context


def load_secret(parameters: EncryptionParameters, data: bytes) -> Any:
    """The TenSEAL context of a secret key.

    Raises:
        ConfigurationError: it holds no secret key, has other parameters, or is no context.
    """
    context = _load(parameters, data)
    if not context.is_private():
        raise ConfigurationError(
            "a secret context is needed to decrypt and this one is public; "
            "the key holder keeps ContextPair.secret_context"
        )
    return context


def tenseal() -> Any:
    """The TenSEAL package, imported when it is first needed.

    Raises:
        ConfigurationError: it is not installed.
    """
    try:
        # TenSEAL's own bindings hand out SEAL's moduli only once those of its second module are registered.
        importlib.import_module("tenseal.sealapi")
        return importlib.import_module("tenseal")
    except ImportError as error:
        raise ConfigurationError(
            "encrypted sums need TenSEAL, which is not installed: pip install 'analytic-secagg[he]'"
        ) from error


def _load(parameters: EncryptionParameters, data: bytes) -> Any:
    most = 64 * parameters.degree * len(parameters.all_prime_bits)
    if not 0 < len(data) <= most:
        raise ConfigurationError(f"a context of these parameters takes 1 to {most} bytes, not {len(data)}")
    try:
        context = tenseal().context_from(data, n_threads=1)
    except ConfigurationError:
        raise
    except Exception as error:  # what TenSEAL raises on broken bytes is not documented
        raise ConfigurationError(f"these {len(data)} bytes are no TenSEAL context") from error
    _check_parameters(context, parameters)
    return context


def _check_parameters(context: Any, parameters: EncryptionParameters) -> None:
    found = context.data.seal_context().key_context_data().parms()
    came = (
        found.scheme().name.lower(),
        found.poly_modulus_degree(),
        [prime.value() for prime in found.coeff_modulus()],
        found.plain_modulus().value(),
        context.has_public_key(),
    )
    needed = (
        parameters.scheme,
        parameters.degree,
        [*parameters.primes, parameters.special_prime],
        parameters.plain_modulus,
        True,
    )
    if came != needed:
        raise ConfigurationError(
            f"the context has (scheme, degree, primes, plain modulus, public key) {came}, and the session's parameters "
            f"are {needed}; generate it with generate_contexts(parameters)"
        )
