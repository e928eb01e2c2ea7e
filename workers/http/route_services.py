"""What the requests of a gateway share: limits, caches and the deployment."""

from __future__ import annotations

import threading
from typing import NamedTuple, Self

from starlette.datastructures import State

from tasks.services import Lazy
from workers.backend.store_backend import StoreBackend
from workers.evaluation.runs.labelled_prompts import LabelledPrompts
from workers.http.limits.rate_limits import FairSemaphore
from workers.http.limits.thread_slots import ThreadSlots
from workers.http.queries.query_service import QueryService
from workers.http.routes.library.search import open_library
from workers.http.routes.operations.settings import RecentChecks, open_checks
from workers.http.routes.usage import UsageReaders
from workers.http.tokens import TokenStore, open_token_store
from workers.library.public_skills import PublicSkills
from workers.library.search.library_search import LibrarySearch

_MAX_ARCHIVES = 4


class RouteServices(NamedTuple):
    """The services of a gateway, shared by HTTP and console so that limits count for both. Routes
    depend on them by name (`from_state`)."""

    backend: StoreBackend
    queries: QueryService
    library: LibrarySearch
    usage: UsageReaders
    labelled: Lazy[LabelledPrompts]
    checks: RecentChecks
    tokens: TokenStore
    public_skills: PublicSkills
    archive_slots: ThreadSlots
    upload_slots: threading.BoundedSemaphore
    delivery_slots: FairSemaphore

    @classmethod
    def create(cls, backend: StoreBackend, tokens: TokenStore | None) -> Self:
        """Create the services of a deployment. tokens: None if requests need no token."""
        settings = backend.settings
        return cls(
            backend=backend,
            queries=QueryService(backend),
            library=open_library(backend),
            usage=UsageReaders(backend),
            labelled=Lazy(lambda: LabelledPrompts(backend.outcome_store())),
            checks=open_checks(backend),
            tokens=tokens or open_token_store(settings),
            public_skills=PublicSkills(settings, backend.skills),
            archive_slots=ThreadSlots(_MAX_ARCHIVES, waiting=2 * _MAX_ARCHIVES),
            upload_slots=threading.BoundedSemaphore(settings.uploads.at_once),
            delivery_slots=FairSemaphore(settings.webhooks.open_bodies),
        )

    def install(self, state: State) -> None:
        """Set the services on the state of an application."""
        for name, service in self._asdict().items():
            setattr(state, name, service)
