"""The HTTP gateway: queries, skills, sources, events and dead letters over a port or a socket.

Each resource has a module with a function `xxx_routes(channel, ...) -> APIRouter`; `create_gateway`
of `app` puts them together.
"""
