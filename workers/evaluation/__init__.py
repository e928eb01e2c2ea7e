"""Evaluation of a library on labelled data: predictions, and metrics as in the papers."""
