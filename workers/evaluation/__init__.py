"""Evaluation of a library on labelled data: predictions and the metrics of the papers."""
