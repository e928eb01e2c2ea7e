"""Types of parameters that are stricter than those of click."""

from __future__ import annotations

import math
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


class NumberRange(click.FloatRange):
    """A number in a range; `nan`, which no bound excludes, is invalid."""

    @override
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is not a number", param, ctx)
        return number
