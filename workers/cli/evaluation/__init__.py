"""`skillbus eval`: measure a library on labelled tasks."""
