"""File formats that a task names, by suffix or by word."""

from __future__ import annotations

import re

from search.text.tokens import tokenize
from skills.unicode_normalization import normalize

FORMAT_NAMES = {
    "xlsx": ("xlsx", "xls", "excel", "spreadsheet"),
    "docx": ("docx", "doc"),
    "pptx": ("pptx", "ppt", "powerpoint"),
    "pdf": ("pdf",),
    "csv": ("csv", "tsv"),
    "json": ("json", "jsonl"),
    "yaml": ("yaml", "yml"),
    "toml": ("toml",),
    "xml": ("xml",),
    "html": ("html", "htm"),
    "latex": ("latex", "tex"),
    "parquet": ("parquet",),
    "sqlite": ("sqlite", "sqlite3"),
    "svg": ("svg",),
    "png": ("png",),
    "jpeg": ("jpeg", "jpg"),
    "gif": ("gif",),
    "mp3": ("mp3",),
    "mp4": ("mp4",),
    "wav": ("wav",),
    "epub": ("epub",),
    "stl": ("stl",),
    "geojson": ("geojson",),
    "ipynb": ("ipynb", "jupyter"),
    "bibtex": ("bibtex", "bib"),
    "pcap": ("pcap", "pcapng"),
}
"""Names of common file formats; any other suffix is a format of that name."""

_FORMAT_OF = {name: kind for kind, names in FORMAT_NAMES.items() for name in names}

_MAX_REFERENCES = 64
_CODE_SPAN = re.compile(r"`([^`\n]{1,200})`")
# The lookbehinds keep matches from beginning inside a run, so that long runs of one character
# take linear time.
_PATH = re.compile(
    r"(?<![\w@])(?:https?://[^\s)>\]\"'`]+|(?<![.-])[~.]?/?(?:[\w.-]+/)+[\w.-]*"
    r"|(?<!-)[\w-]+\.(?a:\w{1,8}\b))"
)
# Chinese follows a file name without a space.
_SUFFIX = re.compile(r"\.([a-z][a-z0-9]{1,5})(?![\x00-\x7f])")
_BARE_SUFFIX = re.compile(r"(?<![\w.])\.([a-z][a-z0-9]{1,5})\b")


def find_formats(text: str) -> dict[str, tuple[str, ...]]:
    """Return the file formats that a task names, sorted, with the index terms of their names."""
    text = normalize("NFKC", text)
    lowered = text.lower()
    words = set(re.findall(r"[a-z][a-z0-9]+", lowered))
    named = {_FORMAT_OF[word] for word in words if word in _FORMAT_OF}
    references = (name.lower() for name in _find_references(text))
    suffixes = {match.group(1) for name in references if (match := _SUFFIX.search(name))}
    suffixes.update(_BARE_SUFFIX.findall(lowered))
    named.update(_FORMAT_OF.get(suffix, suffix) for suffix in suffixes)
    return {
        kind: tuple(dict.fromkeys(token for name in (kind, *names) for token in tokenize(name)[:1]))
        for kind in sorted(named)
        for names in [FORMAT_NAMES.get(kind, ())]
    }


def _find_references(text: str) -> list[str]:
    """Return code spans, paths, file names and URLs in order; at most _MAX_REFERENCES."""
    spans = [(match.start(), match.group(1).strip()) for match in _CODE_SPAN.finditer(text)]
    paths = [(match.start(), match.group().rstrip(".,;:")) for match in _PATH.finditer(text)]
    found = (name for _, name in sorted(spans + paths) if len(name) > 1)
    return list(dict.fromkeys(found))[:_MAX_REFERENCES]
