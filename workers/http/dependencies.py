"""Dependencies of routes on the deployment and on services that requests share."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends, Request

from workers.backend.store_backend import StoreBackend


def from_state(name: str) -> Any:
    """Return a dependency on an attribute of the application's state."""

    async def get(request: Request) -> Any:
        return getattr(request.app.state, name)

    return Depends(get)


CurrentBackend = Annotated[StoreBackend, from_state("backend")]
