"""Type of parameters that name a folder."""

from __future__ import annotations

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
