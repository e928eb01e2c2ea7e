"""An endpoint of a language model: HTTP, its completions and refusals, and what is known of it."""
