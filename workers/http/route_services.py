"""Services of routes with state, such as limits and caches."""

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
    """The services of a gateway, shared by HTTP and console so that limits count for both."""

    queries: QueryService
    usage: UsageService
    quality: QualityService
    settings: SettingsService
    tokens: TokenService

    @classmethod
    def create(cls, backend: StoreBackend, tokens: TokenStore | None) -> Self:
        """Create the services of a deployment. tokens: None if requests need no token."""
        return cls(
            QueryService(backend),
            UsageService(backend),
            QualityService(backend),
            SettingsService(backend),
            TokenService(backend.settings, tokens),
        )
