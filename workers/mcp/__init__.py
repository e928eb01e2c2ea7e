"""The library as tools and resources of the Model Context Protocol, for agents.

`server` creates the server, `tools` has its functions, and `stdio` and `http` are its transports.
"""
