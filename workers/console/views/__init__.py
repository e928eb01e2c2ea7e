"""Views of the console: the pages of one subject each, and their forms."""
