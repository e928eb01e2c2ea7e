"""Forms of the console; they are read only if one of its own pages sent them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar
from urllib.parse import urlsplit

from fastapi import Depends, Request
from pydantic import BaseModel, ValidationError
from starlette.datastructures import FormData
from starlette.exceptions import HTTPException

from config.errors import UsageError
from skills.events import describe_validation_error
from workers.console.pages import Pages, check_local_url

_MAX_FIELDS = 60
_MEDIA_TYPE = "application/x-www-form-urlencoded"

Model = TypeVar("Model", bound=BaseModel)


async def read_form(request: Request) -> FormData:
    """Return the fields of a form.

    Raises HTTPException: 403 for a form that another origin sent, or that lacks a CSRF token of the
    session, 415 for another form than those of the pages.
    """
    pages: Pages = request.app.state.pages
    _check_origin(request)
    # `multipart/form-data` may name any codec of Python, such as one that decodes lone surrogates.
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != _MEDIA_TYPE:
        raise HTTPException(415, f"content type: send a form as {_MEDIA_TYPE}")
    form = await request.form(max_fields=_MAX_FIELDS)
    session = pages.get_session(request)
    token = form.get("csrf_token")
    if (
        session is None
        or not isinstance(token, str)
        or not pages.sessions.is_csrf_token(session, token)
    ):
        raise HTTPException(
            403,
            "this form belongs to another session, or is too old: go back, reload the page, and "
            "send it again",
        )
    return form


def _check_origin(request: Request) -> None:
    """Raise HTTPException (403) unless a page of this origin sent the request."""
    origin = request.headers.get("origin")
    if origin is not None:
        host = "" if origin == "null" else urlsplit(origin.lower()).netloc
        is_own = host == request.headers.get("host", "").lower()
    else:
        is_own = request.headers.get("sec-fetch-site", "same-origin") == "same-origin"
    if not is_own:
        raise HTTPException(403, "only pages of the console itself may send its forms")


SentForm = Annotated[FormData, Depends(read_form)]


def get_text(form: FormData, name: str, max_characters: int = 4_096) -> str:
    """Return a field of a form, "" if it is missing; raises UsageError if it is too long."""
    value = form.get(name, "")
    text = value if isinstance(value, str) else ""
    if len(text) > max_characters:
        raise UsageError(f"{name} has more than {max_characters:,} characters; shorten it")
    return text.replace("\r\n", "\n")


def get_next_url(form: FormData) -> str:
    """Return the page to show after a form, by default the first one.

    Its URL may be long: that of Ask has a task.
    """
    return check_local_url(str(form.get("next", "")))


def validate(model: type[Model], values: Mapping[str, Any]) -> Model:
    """Return a model of the HTTP API with values of a page; raises UsageError if one is invalid."""
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise UsageError(describe_validation_error(error)) from None
