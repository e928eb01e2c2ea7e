"""The language model: protocol, client of an OpenAI-compatible endpoint, stored answers, budget."""
