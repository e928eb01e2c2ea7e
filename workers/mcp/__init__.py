"""The library as tools and resources of the Model Context Protocol, for agents.

`server` makes the server over a library, `ways` and `shelf` reach one, `stdio` and `http` are its
two transports.
"""
