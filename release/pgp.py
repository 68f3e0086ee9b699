"""Signatures that helm(1) verifies: OpenPGP packets (RFC 9580, version 4) made of a release's own P-256 key.

Called by `release.signatures`. So one key of a maintainer signs for ssh-keygen, cosign and helm, and no keyring of gpg
is needed. Signatures are deterministic: the same key and time give the same bytes.
"""

from __future__ import annotations

import base64
import hashlib
import struct
import textwrap
from typing import Any

CREATED = 1_577_836_800
"""2020-01-01: OpenPGP's fingerprint of a key covers its time, which no file of a key has."""
USER = "netdra"
_ECDSA, _SHA256 = 19, 8
_P256 = bytes.fromhex("082a8648ce3d030107")
_KEY, _USER, _SIGNATURE = 6, 13, 2
_OF_TEXT, _OF_USER = 0x01, 0x13
_MAY_CERTIFY_AND_SIGN = b"\x03"


def keyring(key: Any) -> bytes:
    """The public half of a key of the package cryptography, as a keyring of helm and gpg."""
    public, user = _public(key), USER.encode()
    covered = _prefixed(0x99, "H", public) + _prefixed(0xB4, "L", user)
    flags = _subpacket(27, _MAY_CERTIFY_AND_SIGN)
    return _packet(_KEY, public) + _packet(_USER, user) + _signature(key, _OF_USER, covered, CREATED, flags)


def clearsigned(key: Any, text: str, time: int) -> str:
    """A text with its signature.

    Args:
        key: a private key on P-256, of the package cryptography.
        text: lines without spaces at their ends.
        time: of the signature, in seconds since 1970.
    """
    lines = text.removesuffix("\n").split("\n")
    signature = _signature(key, _OF_TEXT, "\r\n".join(lines).encode(), max(time, CREATED), b"")
    escaped = "\n".join(f"- {line}" if line.startswith("-") else line for line in lines)
    return f"-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA256\n\n{escaped}\n{_armored(signature)}"


def _public(key: Any) -> bytes:
    numbers = key.public_key().public_numbers()
    point = b"\x04" + numbers.x.to_bytes(32) + numbers.y.to_bytes(32)
    return struct.pack(">BIB", 4, CREATED, _ECDSA) + _P256 + _integer(int.from_bytes(point))


def _signature(key: Any, kind: int, covered: bytes, time: int, subpackets: bytes) -> bytes:
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

    fingerprint = hashlib.sha1(_prefixed(0x99, "H", _public(key)), usedforsecurity=False).digest()
    hashed = _subpacket(2, struct.pack(">I", time)) + _subpacket(33, b"\x04" + fingerprint) + subpackets
    head = struct.pack(">BBBBH", 4, kind, _ECDSA, _SHA256, len(hashed)) + hashed
    content = covered + head + b"\x04\xff" + struct.pack(">I", len(head))
    method = ec.ECDSA(hashes.SHA256(), deterministic_signing=True)
    r, s = decode_dss_signature(key.sign(content, method))
    issuer = _subpacket(16, fingerprint[-8:])
    start = hashlib.sha256(content).digest()[:2]
    return _packet(_SIGNATURE, head + struct.pack(">H", len(issuer)) + issuer + start + _integer(r) + _integer(s))


def _packet(tag: int, body: bytes) -> bytes:
    return struct.pack(">BBI", 0xC0 | tag, 0xFF, len(body)) + body


def _subpacket(kind: int, body: bytes) -> bytes:
    return struct.pack(">BB", len(body) + 1, kind) + body


def _prefixed(first: int, length: str, body: bytes) -> bytes:
    return struct.pack(f">B{length}", first, len(body)) + body


def _integer(number: int) -> bytes:
    return struct.pack(">H", number.bit_length()) + number.to_bytes((number.bit_length() + 7) // 8)


def _armored(signature: bytes) -> str:
    body = "\n".join(textwrap.wrap(base64.b64encode(signature).decode(), 64))
    end = base64.b64encode(_checksum(signature).to_bytes(3)).decode()
    return f"-----BEGIN PGP SIGNATURE-----\n\n{body}\n={end}\n-----END PGP SIGNATURE-----\n"


def _checksum(content: bytes) -> int:
    """The CRC-24 of armored bytes; newer programs ignore it, older ones require it."""
    found = 0xB704CE
    for byte in content:
        found ^= byte << 16
        for _ in range(8):
            found = (found << 1) ^ (0x1864CFB if found & 0x800000 else 0)
    return found & 0xFFFFFF
