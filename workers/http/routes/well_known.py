"""Public skills under `/.well-known/`, which clients such as `npx skills add URL` read.

They need no token. Nothing is public unless `policy.public` names its source.
"""

from __future__ import annotations

import hashlib
import json
from typing import Annotated

from fastapi import APIRouter, Header, Response

from workers.http.access import WELL_KNOWN_PREFIXES as PREFIXES
from workers.http.dependencies import from_state
from workers.http.limits.thread_slots import ThreadSlots
from workers.http.responses.etags import respond_if_changed
from workers.library.public_skills import PublicFile, PublicSkills
from workers.library.skill_files import BYTES, MARKDOWN, guess_media_type

_CACHE = "public, max-age=60"
_WAIT_SECONDS = 10.0
_SAFE_TYPES = (
    *("image/png", "image/jpeg", "image/gif", "image/webp", "application/json"),
    *("application/zip", MARKDOWN),
)
"""Types that are sent as they are. Files of other types are sent as plain text or bytes, so that
no browser runs a page of a skill's author as a page of this server."""


CurrentPublic = Annotated[PublicSkills, from_state("public_skills")]
CurrentSlots = Annotated[ThreadSlots, from_state("archive_slots")]
IfNoneMatch = Annotated[str, Header()]

router = APIRouter(include_in_schema=False)


@router.get(f"{PREFIXES[0]}index.json")
def get_index(public: CurrentPublic, if_none_match: IfNoneMatch = "") -> Response:
    """Return the index of version 0.2.0."""
    return _send_json(public.describe(), if_none_match)


@router.get(f"{PREFIXES[1]}index.json")
def get_former_index(public: CurrentPublic, if_none_match: IfNoneMatch = "") -> Response:
    """Return the index of version 0.1.0."""
    return _send_json(public.describe_files(), if_none_match)


@router.get(f"{PREFIXES[0]}{{name}}.zip")
@router.get(f"{PREFIXES[1]}{{name}}.zip")
def get_archive(
    public: CurrentPublic, slots: CurrentSlots, name: str, if_none_match: IfNoneMatch = ""
) -> Response:
    """Return a skill as a zip."""
    with slots.hold(_WAIT_SECONDS, "other archives are being made; try again later"):
        return _send_file(public.read_archive(name), if_none_match)


@router.get(f"{PREFIXES[0]}{{name}}/{{path:path}}")
@router.get(f"{PREFIXES[1]}{{name}}/{{path:path}}")
def get_file(
    public: CurrentPublic, name: str, path: str, if_none_match: IfNoneMatch = ""
) -> Response:
    """Return a file of a skill."""
    return _send_file(public.read_file(name, path), if_none_match)


def _send_json(data: object, if_none_match: str) -> Response:
    content = json.dumps(data, ensure_ascii=False).encode()
    digest = hashlib.sha256(content).hexdigest()
    return respond_if_changed(content, "application/json", digest, _CACHE, if_none_match)


def _send_file(file: PublicFile, if_none_match: str) -> Response:
    kind = _choose_type(file)
    return respond_if_changed(file.content, kind, file.sha256, _CACHE, if_none_match)


def _choose_type(file: PublicFile) -> str:
    guessed = guess_media_type(file.name)
    if guessed in _SAFE_TYPES:
        return guessed
    try:
        file.content.decode()
    except UnicodeDecodeError:
        return BYTES
    return "text/plain"
