"""The store of what a language model said about pairs of skills: verdicts and rejections."""
