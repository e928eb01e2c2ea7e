"""The catalog and the typed graph behind one protocol; linking and diffusion."""
