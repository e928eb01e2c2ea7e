"""Media types of the files of skills."""

from __future__ import annotations

import mimetypes

MARKDOWN = "text/markdown"
BYTES = "application/octet-stream"

_MARKDOWN_SUFFIXES = (".md", ".markdown")


def guess_media_type(name: str) -> str:
    """Return the media type of a file by its name, that of arbitrary bytes if it is unknown.

    A compressed file, such as `rows.json.gz`, does not have the type of its content.
    """
    if name.lower().endswith(_MARKDOWN_SUFFIXES):
        return MARKDOWN
    kind, compression = mimetypes.guess_type(name)
    return kind if kind and not compression else BYTES
