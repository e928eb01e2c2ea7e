"""Commands for operating a deployment."""
