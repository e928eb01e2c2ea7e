"""Static files of the console, served under their content hash and compressed once."""

from __future__ import annotations

import gzip
import hashlib
from importlib.resources import files
from typing import NamedTuple

from starlette.responses import Response

PREFIX = "/console/static/"

_HASH_CHARACTERS = 12
_MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
_CACHE = "public, max-age=31536000, immutable"


class StaticFile(NamedTuple):
    """A file of the console. compressed: its content with gzip."""

    name: str
    digest: str
    content: bytes
    compressed: bytes

    @property
    def path(self) -> str:
        """Path of its URL, which changes with the content."""
        return f"{PREFIX}{self.digest}/{self.name}"


class StaticFiles:
    """In-memory copies of the files in the package's folder `assets`."""

    def __init__(self) -> None:
        self._files = {file.name: file for file in map(_load, sorted(_list_names()))}

    def get_url(self, name: str) -> str:
        """Return the URL of a file; raises KeyError if there is none of this name."""
        return self._files[name].path

    def respond(self, digest: str, name: str, accept_encoding: str) -> Response:
        """Return a file, or 404 for a name or hash that is not served."""
        file = self._files.get(name)
        if file is None or file.digest != digest:
            return Response("there is no such file\n", 404, media_type="text/plain")
        headers = {"Cache-Control": _CACHE, "Vary": "Accept-Encoding"}
        kind = _MEDIA_TYPES[name[name.rindex(".") :]]
        if "gzip" in accept_encoding:
            headers["Content-Encoding"] = "gzip"
            return Response(file.compressed, headers=headers, media_type=kind)
        return Response(file.content, headers=headers, media_type=kind)


def _list_names() -> list[str]:
    folder = files("workers.console") / "assets"
    return [file.name for file in folder.iterdir() if file.name.endswith(tuple(_MEDIA_TYPES))]


def _load(name: str) -> StaticFile:
    content = (files("workers.console") / "assets" / name).read_bytes()
    digest = hashlib.sha256(content).hexdigest()[:_HASH_CHARACTERS]
    return StaticFile(name, digest, content, gzip.compress(content, 9, mtime=0))
