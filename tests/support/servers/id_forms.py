"""Ids and URIs of hidden skills in other forms, sent to every route, tool and method by a reader.

An outsider may know the id of a hidden skill and write it in ways that some layer takes for the
same: another case or Unicode form, encodings, parts of paths. Each is answered like the same form
of an id that nothing has.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any
from urllib.parse import quote

import anyio
import httpx
from mcp import Client
from mcp.shared.exceptions import MCPError

from skills.skill_uri import make_skill_uri
from tests.support.servers.hidden_skills import MARK, UNKNOWN, VARYING, Walked
from tests.support.servers.mcp import ask, over_http

ACCENTED = f"{MARK}vault:{MARK}-café"
"""A hidden skill whose id has two Unicode forms; here the composed one."""

_NAMES = ("skill_id", "skill", "source_id", "source")

FORMS: Mapping[str, Callable[[str], str]] = {
    "as it is": str,
    "decomposed": partial(unicodedata.normalize, "NFD"),
    "upper case": str.upper,
    "other case": str.swapcase,
    "full width": lambda one: chr(ord(one[0]) + 0xFEE0) + one[1:],
    "soft hyphen": lambda one: f"{one[0]}\u00ad{one[1:]}",
    "encoded": lambda one: f"%{ord(one[0]):02X}{one[1:]}",
    "encoded twice": lambda one: f"%25{ord(one[0]):02X}{one[1:]}",
    "with seq": lambda one: f"{one}@1",
    "with a later seq": lambda one: f"{one}@2",
    "space": lambda one: f"{one} ",
    "dot": lambda one: f"{one}.",
    "slash": lambda one: f"{one}/",
    "current folder": lambda one: one.replace(":", ":./"),
    "from another folder": lambda one: one.replace(":", ":x/../"),
    "from another source": lambda one: f"crafts/../{one}",
    "line end": lambda one: f"{one}\n",
    "null": lambda one: f"{one}\0",
    "query": lambda one: f"{one}?x=1",
    "file": lambda one: f"{one}/SKILL.md",
}

URI_FORMS: Mapping[str, Callable[[str], str]] = {
    "upper case": lambda uri: "skill://" + uri.removeprefix("skill://").upper(),
    "scheme": lambda uri: uri.replace("skill://", "SKILL://"),
    "encoded": lambda uri: uri.replace("vault", "v%61ult"),
    "encoded twice": lambda uri: uri.replace("vault", "v%2561ult"),
    "decomposed": lambda uri: uri.replace("%C3%A9", "e%CC%81"),
    "lower hexadecimal": lambda uri: uri.replace("%C3%A9", "%c3%a9"),
    "through a visible skill": lambda uri: uri.replace("//", "//crafts/kiln-firing/../../"),
    "dots encoded": lambda uri: uri.replace("//", "//crafts/kiln-firing/%2e%2e/%2E%2E/"),
    "slash encoded": lambda uri: uri.replace("//", "//crafts/kiln-firing/..%2f..%2f"),
    "overlong": lambda uri: uri.replace("//", "//crafts/kiln-firing/%c0%ae%c0%ae/%c0%ae%c0%ae/"),
    "backslash": lambda uri: uri.replace("//", "//crafts/kiln-firing/..\\..\\"),
    "empty segments": lambda uri: uri.replace("//", "////"),
    "userinfo": lambda uri: uri.replace("//", "//crafts@"),
    "query": lambda uri: f"{uri}?x",
    "fragment": lambda uri: f"{uri}#x",
    "null": lambda uri: f"{uri}%00",
    "line end": lambda uri: f"{uri}%0a",
    "slash": lambda uri: f"{uri}/",
}

FILES_OUTSIDE = (
    "skill://crafts/kiln-firing/link.md",
    "skill://crafts/kiln-firing/linked/secret.md",
    "skill://crafts/kiln-firing/../secret.md",
    "skill://crafts/kiln-firing/../../secret.md",
    "skill://crafts/kiln-firing/%2e%2e/%2e%2e/secret.md",
    "skill://crafts/kiln-firing/..%2f..%2fsecret.md",
    "skill://crafts/kiln-firing/..%5c..%5csecret.md",
    "skill://crafts/kiln-firing/%252e%252e/%252e%252e/secret.md",
    "skill://crafts/kiln-firing/%c0%ae%c0%ae/%c0%ae%c0%ae/secret.md",
    "skill://crafts/kiln-firing/%e0%80%ae%e0%80%ae/secret.md",
    "skill://crafts/kiln-firing/cones.md%00",
    "skill://crafts/kiln-firing/CONES.md",
    "skill://crafts/kiln-firing/cones.md/",
    "skill://crafts/kiln-firing//etc/passwd",
    "skill://crafts/kiln-firing/%2fetc%2fpasswd",
    "skill:///etc/passwd",
    "file:///etc/passwd",
    "skillbus://skills/crafts%3A..%2F..%2Fsecret",
    "skillbus://skills/%2e%2e%2fsecret.md",
)
"""URIs that lead out of a visible skill, where a file has the mark."""


def walk_id_forms(walked: Walked) -> None:
    """Send every form of a hidden id to every route that a reader may call with one."""
    document = walked.admin.get("/v1/openapi.json").json()
    with walked.client("reader") as client:
        for path, methods in document["paths"].items():
            for method, operation in methods.items():
                named = {one["name"] for one in operation.get("parameters", ())}
                if method == "get" and named & set(_NAMES):
                    _walk_route(walked, client, path, sorted(named & set(_NAMES)))
        for form, change in FORMS.items():
            _compare_bodies(walked, client, form, change)


def _walk_route(walked: Walked, client: httpx.Client, path: str, named: list[str]) -> None:
    for form, change in FORMS.items():

        def answer(skill_id: str, change: Callable[[str], str] = change) -> str:
            source_id = skill_id.partition(":")[0]
            values = {one: change(skill_id if "skill" in one else source_id) for one in named}
            url = path.replace("{seq}", "1")
            for name, value in values.items():
                url = url.replace(f"{{{name}}}", quote(value, safe=""))
            query = {one: value for one, value in values.items() if f"{{{one}}}" not in path}
            return _without(client.get(url, params=query), *values.values())

        walked.compare(f"{form} GET {path}", *_both(answer))


def _compare_bodies(
    walked: Walked, client: httpx.Client, form: str, change: Callable[[str], str]
) -> None:
    def ask_pinned(skill_id: str) -> str:
        body = {"task": "zeppelin", "pins": {change(skill_id): 1}}
        return _post(client, body, change(skill_id))

    def ask_filtered(skill_id: str) -> str:
        source_id = change(skill_id.partition(":")[0])
        body = {"task": "Reconcile the zeppelin ledger", "filters": {"source": [source_id]}}
        return _post(client, body, source_id)

    walked.compare(f"{form} pins", *_both(ask_pinned))
    walked.compare(f"{form} filters", *_both(ask_filtered))


def _post(client: httpx.Client, body: Mapping[str, Any], form: str) -> str:
    return _without(client.post("/v1/queries", json=body, headers={"Prefer": "wait=60"}), form)


def _both(answer: Callable[[str], str]) -> tuple[str, str]:
    """The answers about a hidden id, and about one that nothing has."""
    return answer(ACCENTED), answer(ACCENTED.replace(MARK, UNKNOWN))


def _without(answer: httpx.Response, *forms: str) -> str:
    """Status and text of an answer without the forms that the request has sent."""
    text = VARYING.sub("", f"{answer.status_code} {answer.text}")
    for form in sorted(forms, key=len, reverse=True):
        for shown in (form, repr(form)[1:-1]):
            text = text.replace(json.dumps(shown, ensure_ascii=False)[1:-1], "ID")
        text = text.replace(quote(form, safe=""), "ID")
    return text


def walk_uri_forms(walked: Walked) -> None:
    """Send every form of a hidden URI, and URIs that lead out of a skill, to each method of MCP."""
    anyio.run(_walk_uris, walked)


async def _walk_uris(walked: Walked) -> None:
    hidden = f"{make_skill_uri(ACCENTED, f'{MARK}-coffee')}/SKILL.md"
    plain = f"skill://{MARK}vault/{MARK}-ledger/SKILL.md"
    methods = ("resources/read", "skills/get", "resources/directory/read")
    async with over_http(f"{walked.url}/mcp", walked.secrets["reader"]) as client:
        for uri in (hidden, plain, plain.removesuffix("/SKILL.md")):
            for form, change in URI_FORMS.items():
                for method in methods:
                    answers = [
                        await _ask(client, method, change(one), one)
                        for one in (uri, uri.replace(MARK, UNKNOWN))
                    ]
                    walked.compare(f"{form} {method} {uri}", *answers)
        for form, change in FORMS.items():
            answers = []
            for skill_id in (ACCENTED, ACCENTED.replace(MARK, UNKNOWN)):
                found = await client.call_tool("read_skill", {"skill_id": change(skill_id)})
                shown = repr(change(skill_id))[1:-1]  # the tool quotes it, and `repr` does again
                text = repr(found).replace(repr(shown)[1:-1], "ID").replace(shown, "ID")
                answers.append(text)
            walked.compare(f"{form} read_skill", *answers)
        for uri in FILES_OUTSIDE:
            for method in methods:
                answer = await _ask(client, method, uri, uri)
                walked.note(f"mcp {method} {uri}", answer)
                assert answer.startswith("refused"), (method, uri, answer)
        for path in ("../../secret", "kiln-firing/../../secret", "kiln-firing/link.md"):
            found = await client.call_tool("read_skill", {"skill_id": f"crafts:{path}"})
            walked.note(f"mcp read_skill {path}", repr(found))
            assert found.is_error


async def _ask(client: Client, method: str, uri: str, written: str) -> str:
    try:
        answer = repr(await ask(client, method, uri=uri))
    except MCPError as error:
        answer = f"refused {error.error.code} {error.error.message} {error.error.data}"
    for shown in (uri, repr(uri)[1:-1], written):
        answer = answer.replace(shown, "URI")
    return answer
