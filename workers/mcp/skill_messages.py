"""Messages of the extension `io.modelcontextprotocol/skills`, as its specification defines them.

Results are dictionaries: the SDK drops nulls of models, but nulls of a frontmatter matter.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

from mcp_types import PaginatedRequestParams, RequestParams

from workers.library.served_skills import (
    DirectoryChild,
    FileContent,
    ServedSkill,
    SkillPage,
)
from workers.library.skill_files import guess_media_type

TTL_MILLISECONDS = 60_000
"""Time for which a client may use a list, an entry or a file without asking again,
unless it is notified."""

DIRECTORY_TYPE = "inode/directory"
_CACHE = {"ttlMs": TTL_MILLISECONDS, "cacheScope": "private"}


class ListSkillsParams(PaginatedRequestParams):
    """Parameters of `skills/list`."""


class GetSkillParams(RequestParams):
    """Parameters of `skills/get`. uri: of the skill's SKILL.md."""

    uri: str


class ReadDirectoryParams(PaginatedRequestParams):
    """Parameters of `resources/directory/read`. uri: of a folder of a skill."""

    uri: str


def make_list_result(page: SkillPage) -> dict[str, Any]:
    """Return the result of `skills/list`.

    Its `_meta` has under `skillbus/skills` the data of skillbus on each skill by its URI, and under
    `skillbus/leftOut` the skills that are left out, with the reason.
    """
    meta: dict[str, Any] = {
        "skillbus/skills": {one.skill_file_uri: _describe(one) for one in page.skills}
    }
    if page.left_out:
        meta["skillbus/leftOut"] = [
            {"skill_id": one.skill_id, "reason": one.reason} for one in page.left_out
        ]
    result: dict[str, Any] = {"resultType": "complete", "skills": list(map(_entry, page.skills))}
    if page.next_after:
        result["nextCursor"] = page.next_after
    return result | _CACHE | {"_meta": meta}


def make_get_result(skill: ServedSkill) -> dict[str, Any]:
    """Return the result of `skills/get`, with `_meta` as in a list."""
    return {
        "resultType": "complete",
        "skill": _entry(skill),
        **_CACHE,
        "_meta": {"skillbus/skills": {skill.skill_file_uri: _describe(skill)}},
    }


def make_read_result(uri: str, file: FileContent) -> dict[str, Any]:
    """Return the result of `resources/read`: text if the bytes are UTF-8, else a blob."""
    content: dict[str, Any] = {"uri": uri, "mimeType": guess_media_type(file.name)}
    try:
        content["text"] = file.content.decode()
    except UnicodeDecodeError:
        content["blob"] = base64.b64encode(file.content).decode()
    key, record = file.revision.key, file.revision.parsed.record
    origin = {
        "skill_id": key.skill_id,
        "revision": key.seq,
        "safety_level": record.safety_level,
    }
    return {
        "resultType": "complete",
        "contents": [content | {"_meta": {"skillbus/skill": origin}}],
        **_CACHE,
    }


def make_directory_result(children: Sequence[DirectoryChild], cursor: str = "") -> dict[str, Any]:
    """Return the result of `resources/directory/read`. cursor: of the next page, "" if none."""
    resources = [
        {"uri": one.uri, "name": one.name, "mimeType": DIRECTORY_TYPE}
        if one.size is None
        else {
            "uri": one.uri,
            "name": one.name,
            "mimeType": guess_media_type(one.name),
            "size": one.size,
        }
        for one in children
    ]
    # Clients such as the Inspector need the cache hints of `resources/list` here too.
    result: dict[str, Any] = {"resultType": "complete", "resources": resources, **_CACHE}
    return result | ({"nextCursor": cursor} if cursor else {})


def _entry(skill: ServedSkill) -> dict[str, Any]:
    return {
        "uri": skill.skill_file_uri,
        "frontmatter": dict(skill.frontmatter),
        "resources": [
            {"uri": file.uri, "digest": f"sha256:{file.sha256}", "size": file.size}
            for file in skill.files
        ],
    }


def _describe(skill: ServedSkill) -> dict[str, Any]:
    return {
        "skill_id": skill.skill_id,
        "revision": skill.seq,
        "safety_level": skill.safety_level,
    }
