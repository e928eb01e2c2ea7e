"""Every process that can be started, and the composition root."""
