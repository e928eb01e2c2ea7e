"""The HTTP gateway: queries, skills, sources, events and dead letters over a port or a socket.

`app.create_gateway` builds it. Each module of `routes` has a function `xxx_routes(backend, ...)`
that returns the APIRouter of one resource.
"""
