"""Services of routes that keep something, such as limits and what was read lately."""

from __future__ import annotations

from typing import NamedTuple, Self

from workers.backend.store_backend import StoreBackend
from workers.http.routes.operations.settings import SettingsService
from workers.http.routes.operations.tokens import TokenService
from workers.http.routes.quality.service import QualityService
from workers.http.routes.queries import QueryService
from workers.http.routes.usage import UsageService
from workers.http.tokens import TokenStore


class RouteServices(NamedTuple):
    """One of each for a gateway, so that its limits count for HTTP and for the console."""

    queries: QueryService
    usage: UsageService
    quality: QualityService
    settings: SettingsService
    tokens: TokenService

    @classmethod
    def create(cls, backend: StoreBackend, tokens: TokenStore | None) -> Self:
        """Return the services of a deployment. tokens: None where no token is asked for."""
        return cls(
            QueryService(backend),
            UsageService(backend),
            QualityService(backend),
            SettingsService(backend),
            TokenService(backend.settings, tokens),
        )
