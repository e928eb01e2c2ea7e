"""Write the published JSON Schemas beside this file, or with --check say which are not fresh."""

from __future__ import annotations

import sys
from pathlib import Path

from skills.bundle import bundle_schema
from skills.events import events_schema

FILES = {"bundle.schema.json": bundle_schema, "events.schema.json": events_schema}


def stale() -> list[str]:
    """Names of published schemas that differ from what the code says."""
    here = Path(__file__).parent
    return [
        name
        for name, make in FILES.items()
        if not (here / name).exists() or (here / name).read_text(encoding="utf-8") != make()
    ]


def main() -> None:
    """Write what is not fresh; with --check only name it and fail."""
    names = stale()
    if "--check" in sys.argv[1:]:
        if names:
            sys.exit(f"{', '.join(names)}: not what the code says; run `make schemas`")
        return
    for name in names:
        (Path(__file__).parent / name).write_text(FILES[name](), encoding="utf-8")


if __name__ == "__main__":
    main()
