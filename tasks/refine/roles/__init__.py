"""The roles stage: a language model gives passages their roles."""
