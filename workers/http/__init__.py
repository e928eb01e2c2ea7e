"""The HTTP gateway: queries, skills, sources, events and dead letters over a port or a socket.

`app.create_gateway` builds it. Each module of `routes` has the `router` of one resource. Its
functions take what they need as dependencies: the deployment, the caller, and services that
requests share (`route_services`). The console calls the same functions.
"""
