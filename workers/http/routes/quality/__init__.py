"""Routes about how well a library is searched: evaluations and labelled prompts."""
