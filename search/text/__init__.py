"""Text analysis: tokens, background term frequencies, Chinese variants, query understanding."""
