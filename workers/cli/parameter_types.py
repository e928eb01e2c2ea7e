"""Types of parameters that are stricter than those of click."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import click
from typing_extensions import override


class FolderPath(click.Path):
    """A path of a folder; an empty text is invalid, as it would stand for the current folder."""

    @override
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail("is empty; name a folder", param, ctx)
        return super().convert(value, param, ctx)


class OutputFile(click.Path):
    """A file to write, refused before the work begins if it cannot be made.

    suffixes: endings of which the name must have one; none: any.
    """

    def __init__(self, *suffixes: str) -> None:
        super().__init__(dir_okay=False, writable=True, path_type=Path)
        self._suffixes = suffixes

    @override
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path: Any = super().convert(value, param, ctx)
        if self._suffixes and path.suffix not in self._suffixes:
            self.fail(f"{path}: name a {' or '.join(self._suffixes)} file", param, ctx)
        if not path.absolute().parent.is_dir():
            self.fail(f"{path} is in no existing folder", param, ctx)
        return path


class NumberRange(click.FloatRange):
    """A number in a range; `nan`, which no bound excludes, is invalid."""

    @override
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is not a number", param, ctx)
        return number
