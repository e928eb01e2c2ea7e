"""`make quality`: measures a library on labelled data and writes docs/explanation/quality.md.

Measuring writes `docs/explanation/quality.json`; the page and its plots are rendered from it alone.
Each section of the page is a module with `measure`, `render` and, where it has some, `plots`.
"""
