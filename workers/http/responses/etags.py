"""Responses with an `ETag`, which are not sent again to a client that has them (RFC 9110)."""

from __future__ import annotations

from fastapi import Response


def respond_if_changed(
    content: bytes, media_type: str, digest: str, cache_control: str, if_none_match: str | None
) -> Response:
    """Return a response with the content, or 304 if `If-None-Match` has its tag.

    digest: of the content; it becomes the tag, a weak one, since gzip changes the bytes that are
    sent.
    """
    tag = f'"{digest}"'
    headers = {"ETag": f"W/{tag}", "Cache-Control": cache_control}
    known = {one.strip().removeprefix("W/") for one in (if_none_match or "").split(",")}
    if known & {tag, "*"}:
        return Response(status_code=304, headers=headers)
    return Response(content, headers=headers, media_type=media_type)
