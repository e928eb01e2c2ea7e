"""Views of the console: each module has the pages and forms of one subject."""
