"""An OpenID Connect issuer on loopback: keys of its own, discovery, and a JSON Web Key Set."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

AUDIENCE = "skillbus"


def make_key(algorithm: str, bits: int = 2048) -> Any:
    """A private key for an algorithm."""
    if algorithm.startswith("ES"):
        return ec.generate_private_key(
            {"ES256": ec.SECP256R1(), "ES384": ec.SECP384R1()}[algorithm]
        )
    if algorithm == "EdDSA":
        return ed25519.Ed25519PrivateKey.generate()
    return rsa.generate_private_key(65537, bits)


def public_jwk(key_id: str, key: Any, **more: Any) -> dict[str, Any]:
    """The public key as an entry of a JSON Web Key Set."""
    public = key.public_key()
    kinds = {rsa.RSAPublicKey: RSAAlgorithm, ec.EllipticCurvePublicKey: ECAlgorithm}
    kind: Any = next((one for base, one in kinds.items() if isinstance(public, base)), OKPAlgorithm)
    return {**kind.to_jwk(public, as_dict=True), "kid": key_id, "use": "sig", **more}


def public_pem(key: Any) -> bytes:
    """The public key as a text that a server shows."""
    pem: bytes = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return pem


@dataclass
class Issuer:
    """A running issuer. keys: private keys by id. jwks: what it serves. requests: by path. is_down:
    it answers with status 500."""

    address: str = ""
    keys: dict[str, Any] = field(default_factory=dict)
    jwks: list[dict[str, Any]] = field(default_factory=list)
    requests: Counter[str] = field(default_factory=Counter)
    is_down: bool = False

    def add_key(self, key_id: str, algorithm: str = "RS256") -> None:
        """Make a key and publish it."""
        self.keys[key_id] = make_key(algorithm)
        self.jwks.append(public_jwk(key_id, self.keys[key_id]))

    def claims(self, **claims: Any) -> dict[str, Any]:
        """Claims of a valid token; None leaves one out."""
        now = int(time.time())
        given = {
            "iss": self.address,
            "aud": AUDIENCE,
            "sub": "ana@example.org",
            "iat": now,
            "exp": now + 600,
            "groups": ["readers"],
            **claims,
        }
        return {name: value for name, value in given.items() if value is not None}

    def token(
        self,
        key_id: str = "one",
        algorithm: str = "RS256",
        key: Any = None,
        headers: dict[str, Any] | None = None,
        **claims: Any,
    ) -> str:
        """A token with these claims. key: in place of that of the id."""
        return jwt.encode(
            self.claims(**claims),
            self.keys[key_id] if key is None else key,
            algorithm,
            headers={"kid": key_id, **(headers or {})},
        )


@contextmanager
def issuing() -> Iterator[Issuer]:
    """An issuer that runs, with the key `one`."""
    issuer = Issuer()
    issuer.add_key("one")

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            issuer.requests[self.path] += 1
            known = {
                "/.well-known/openid-configuration": {
                    "issuer": issuer.address,
                    "jwks_uri": f"{issuer.address}/keys",
                },
                "/keys": {"keys": issuer.jwks},
            }
            status = 500 if issuer.is_down else 200 if self.path in known else 404
            body = json.dumps(known.get(self.path, {})).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    issuer.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield issuer
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
