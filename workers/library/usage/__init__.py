"""Usage of a deployment as data, for the command line and the gateway."""
