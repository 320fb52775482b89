"""Certificates for a trial on loopback, by an authority of its own. On real hosts use yours (see the how-to)."""

from __future__ import annotations

import datetime
import ipaddress

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

VALID_DAYS = 30


class Authority:
    """Signs certificates of P-256 keys (RFC 5280); its own key is nowhere else and gone with it."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        usage = _usage(key_cert_sign=True, crl_sign=True)
        self._own = self._sign("a trial's authority", self._key, x509.BasicConstraints(ca=True, path_length=0), usage)
        self.certificate = self._own.public_bytes(Encoding.PEM)
        """Its certificate, as PEM."""

    def issue(self, name: str, *addresses: str) -> tuple[bytes, bytes]:
        """Return a certificate and its key, as PEM.

        Args:
            name: whose; the common name, and a host's name where there are addresses.
            addresses: of the host, if it is a server's.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        hosts = [x509.DNSName(name), *(x509.IPAddress(ipaddress.ip_address(address)) for address in addresses)]
        more = [x509.SubjectAlternativeName(hosts)] if addresses else []
        end = x509.BasicConstraints(ca=False, path_length=None)
        signed = self._sign(name, key, end, _usage(digital_signature=True), *more)
        secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return signed.public_bytes(Encoding.PEM), secret

    def _sign(self, name: str, key: ec.EllipticCurvePrivateKey, *extensions: x509.ExtensionType) -> x509.Certificate:
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        now, own = datetime.datetime.now(datetime.UTC), self._key.public_key()
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(subject if key is self._key else self._own.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=VALID_DAYS))
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(own), critical=False)
        )
        for extension in extensions:
            is_critical = not isinstance(extension, x509.SubjectAlternativeName)
            builder = builder.add_extension(extension, critical=is_critical)
        return builder.sign(self._key, hashes.SHA256())


def _usage(**allowed: bool) -> x509.KeyUsage:
    """Return the extension that allows a key these uses and no others."""
    names = ["digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement"]
    names += ["key_cert_sign", "crl_sign", "encipher_only", "decipher_only"]
    return x509.KeyUsage(**(dict.fromkeys(names, False) | allowed))
