"""Bearer tokens of an OpenID Connect issuer."""
