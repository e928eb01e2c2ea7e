"""Routes about the quality of search: evaluations and labelled prompts."""
