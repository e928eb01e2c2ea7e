"""Measuring one's own library: predictions in plain shapes, and the metrics of the papers."""
