"""Generate settings.md from the settings models.

The text of a setting is its field's description, otherwise its entry in MEANINGS. A setting without
either is an error.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from config.settings import OPTIONAL_STAGES, Settings

PAGE = Path(__file__).with_suffix(".md")

MEANINGS = {
    "home": "folder of the library; set only by `--home` or `SKILLBUS_HOME`, not in the file",
    "log_level": "level of log messages on standard error; JSON lines unless it is a terminal",
    "encoder.model": "name or folder of the embedding model",
    "limits.query_characters": "maximum characters of a task",
    "passages.method": "`f`: passages that are enough; `mmr`: SkillPager's rule; `full`: all",
    "workers.ingest_threads": "threads of an embedded library that ingest skills",
    "workers.embed_threads": "threads of an embedded library that embed skills, and as many that "
    "embed sections",
    "workers.query_threads": "threads of an embedded library that answer queries, one each",
    "workers.query_seconds": "time limit of a query, in seconds",
    "workers.reconcile_seconds": "interval at which the reconciler looks for unfinished work",
    "watch.force_polling": "poll even if file notification works",
}

STAGES = {
    "dense": "vectors: retrieval by them, and their cosines in the score",
    "names": "part of the score: names of skills in the task",
    "bigrams": "part of the score: adjacent words in common",
    "hub": "part of the score, for long tasks: the score of a skill for unrelated texts (hubness) "
    "is subtracted",
    "artifacts": "one of the first places for a skill named after a file format of the task",
    "late": "for short queries: cosines of the task with the sections of the best candidates",
    "rewrite": "further queries, written by a language model",
    "rerank": "cross-encoder",
    "diffusion": "personalised PageRank over links",
    "memory": "outcomes of similar past tasks",
    "select": "selection of skills by a language model",
    "floor": "`choice.least_probability`: without it, skills are sent even if the library probably "
    "has none for the task",
    "paging": "vectors in the selection of passages: without it, passages are selected by words",
}
"""Optional stage -> what is skipped without it, in the order of OPTIONAL_STAGES."""


def page() -> str:
    """Return the Markdown of the page: one table for the top level, one for each group."""
    top, groups = [], []
    for name, field in Settings.model_fields.items():
        default = field.get_default(call_default_factory=False)
        if isinstance(default, BaseModel):
            groups.append((name, type(default)))
        else:
            top.append(_row(name, name, field))
    if tuple(STAGES) != OPTIONAL_STAGES:
        raise SystemExit("STAGES must describe the stages of OPTIONAL_STAGES, in their order")
    parts = [_PREFACE, "## Top level", _table(top)]
    for name, group in groups:
        fields = group.model_fields.items()
        parts += [
            f"## `[{name}]`",
            " ".join((group.__doc__ or "").split()),
            _table([_row(key, f"{name}.{key}", field) for key, field in fields]),
        ]
    rows = [f"| `{stage}` | {meaning} |" for stage, meaning in STAGES.items()]
    parts += [_STAGES_PREFACE, "\n".join(["| stage | switches off |", "| --- | --- |", *rows])]
    return "\n\n".join(parts) + "\n"


def _table(rows: list[str]) -> str:
    return "\n".join(
        ["| setting | default | values | meaning |", "| --- | --- | --- | --- |", *rows]
    )


def _row(key: str, name: str, field: FieldInfo) -> str:
    meaning = field.description or MEANINGS.get(name)
    if not meaning:
        raise SystemExit(f"{name}: add a description, or an entry in MEANINGS")
    return f"| `{key}` | {_default(field)} | {_values(field)} | {meaning} |"


def _default(field: FieldInfo) -> str:
    if field.default_factory is not None:
        return "the platform's data folder"
    value = field.default
    if value is None:
        return "none"
    if isinstance(value, (tuple, list, dict)):
        return f"`{json.dumps(value)}`"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f'`"{value}"`' if isinstance(value, str) else f"`{value}`"


def _values(field: FieldInfo) -> str:
    if get_origin(field.annotation) is Literal:
        return ", ".join(f'`"{choice}"`' for choice in get_args(field.annotation))
    kind: Any = next(kind for kind in (*get_args(field.annotation), field.annotation) if kind)
    words = {int: "integer", float: "number", str: "text", bool: "`true` or `false`", Path: "path"}
    if get_origin(field.annotation) is tuple and get_origin(kind) is Literal:
        return "list of " + ", ".join(f'`"{choice}"`' for choice in get_args(kind))
    if get_origin(field.annotation) in (tuple, list):
        return f"list of {words[kind]}s"
    if get_origin(field.annotation) is dict:
        return "table"
    signs = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}
    bounds = [
        f"{sign} {getattr(mark, name)}"
        for mark in field.metadata
        for name, sign in signs.items()
        if getattr(mark, name, None) is not None
    ]
    return " ".join([words[kind], ", ".join(bounds)]).strip()


_PREFACE = """\
# Settings

<!-- Generated: edit config/ and run `python docs/reference/settings.py`. -->

Every setting has a default. `skillbus.toml` in the home, or the file that `SKILLBUS_CONFIG` names,
overrides the defaults. Environment variables override the file; the name of a variable is
`SKILLBUS_`, the group, two underscores and the key, in capitals.

```toml
[passages]
miss = 0.1

[choice]
budget = 4000
```

The same from the environment: `SKILLBUS_PASSAGES__MISS=0.1 SKILLBUS_CHOICE__BUDGET=4000`. An
unknown key or a value out of bounds is an error (exit code 2) that names the setting.
`skillbus config show` prints the settings in force.

A query can switch [stages](#optional-stages) off."""

_STAGES_PREFACE = """\
## Optional stages

`--without STAGE` of `skillbus query` and `skillbus eval` skips a stage, and so does the field
`without` of a [query](http.md#queries)."""


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
