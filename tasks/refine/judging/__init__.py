"""Second opinion of the scanner: the stage `judge`."""
