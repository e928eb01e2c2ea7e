"""Write settings.md beside this file from the settings themselves, or with --check say it is stale.

A setting's own description comes first; MEANINGS fills in for those whose class says what they are
about as a group. A setting with neither is an error, so that none stays unexplained.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from config.settings import OPTIONAL_STAGES, Settings

FILE = Path(__file__).with_suffix(".md")

MEANINGS = {
    "home": "folder of the library; `--home` and `SKILLBUS_HOME` only, not the file",
    "log_level": "what is logged to standard error, as JSON lines where that is no terminal",
    "encoder.model": "name or folder of the model that turns texts into vectors",
    "limits.query_characters": "longest task",
    "passages.method": "`f`: what is worth its tokens; `mmr`: SkillPager's rule; `full`: all",
    "passages.gap": "how far below the best passage method `f` goes; larger sends more",
    "workers.ingest_threads": "threads that read and embed skills",
    "workers.embed_threads": "threads that embed sections",
    "workers.query_threads": "queries answered at once",
    "workers.query_seconds": "time after which a query fails",
    "workers.reconcile_seconds": "interval at which lost work is looked for",
    "watch.force_polling": "poll even where notification works",
}


def settings_reference() -> str:
    """The Markdown of the reference: one table for what stands at the top, one for each group."""
    top, groups = [], []
    for name, field in Settings.model_fields.items():
        default = field.get_default(call_default_factory=False)
        if isinstance(default, BaseModel):
            groups.append((name, type(default)))
        else:
            top.append(_row(name, name, field))
    parts = [_PREFACE, "## Top level", _table(top)]
    for name, group in groups:
        fields = group.model_fields.items()
        parts += [
            f"## `[{name}]`",
            " ".join((group.__doc__ or "").split()),
            _table([_row(key, f"{name}.{key}", field) for key, field in fields]),
        ]
    return "\n\n".join(parts) + "\n"


def _table(rows: list[str]) -> str:
    return "\n".join(
        ["| setting | default | values | what it is |", "| --- | --- | --- | --- |", *rows]
    )


def _row(key: str, name: str, field: FieldInfo) -> str:
    meaning = field.description or MEANINGS.get(name)
    if not meaning:
        raise SystemExit(f"{name}: say what it is, in its description or in MEANINGS")
    return f"| `{key}` | {_default(field)} | {_values(field)} | {meaning} |"


def _default(field: FieldInfo) -> str:
    if field.default_factory is not None:
        return "the platform's data folder"
    value = field.default
    if value is None:
        return "none"
    if isinstance(value, (tuple, dict)):
        return f"`{json.dumps(value)}`"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f'`"{value}"`' if isinstance(value, str) else f"`{value}`"


def _values(field: FieldInfo) -> str:
    if get_origin(field.annotation) is Literal:
        return ", ".join(f'`"{choice}"`' for choice in get_args(field.annotation))
    kind: Any = next(kind for kind in (*get_args(field.annotation), field.annotation) if kind)
    words = {int: "integer", float: "number", str: "text", bool: "`true` or `false`", Path: "path"}
    if get_origin(field.annotation) is tuple:
        return f"list of {words[kind]}s"
    if get_origin(field.annotation) is dict:
        return "table of lists"
    signs = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}
    bounds = [
        f"{sign} {getattr(mark, name)}"
        for mark in field.metadata
        for name, sign in signs.items()
        if getattr(mark, name, None) is not None
    ]
    return " ".join([words[kind], ", ".join(bounds)]).strip()


_PREFACE = f"""\
# Settings

<!-- Written by settings.py beside this file; run `python docs/reference/settings.py` anew. -->

Every setting has a default. `skillbus.toml` in the home overrides it; `SKILLBUS_CONFIG` names
another file. An environment variable overrides the file: `SKILLBUS_`, the group, two underscores,
the key, in capitals.

```toml
[passages]
gap = 4.0

[choice]
budget = 4000
```

The same from the environment: `SKILLBUS_PASSAGES__GAP=4.0 SKILLBUS_CHOICE__BUDGET=4000`. A key of a
group that does not exist, or a value out of its bounds, ends the command with exit code 2 and names
the setting. `skillbus config show` prints what is in force.

Stages that a query can go without (`--without`):
{", ".join(f"`{stage}`" for stage in OPTIONAL_STAGES)}."""


def main() -> None:
    """Write the reference; with --check only say whether it is fresh."""
    text = settings_reference()
    if "--check" in sys.argv[1:]:
        if not FILE.exists() or FILE.read_text(encoding="utf-8") != text:
            sys.exit("settings.md: not what the code says; run `python docs/reference/settings.py`")
        return
    FILE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
