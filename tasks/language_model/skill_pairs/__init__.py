"""Store of a language model's statements about pairs of skills: verdicts and rejections."""
