"""Finds names of packages that are one letter away from a well-known package."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

from skills.filtered_pattern import FilteredPattern
from skills.scanner.normalised_text import NormalisedText

_KNOWN = frozenset(
    [
        "requests",
        "numpy",
        "pandas",
        "scipy",
        "matplotlib",
        "beautifulsoup4",
        "beautifulsoup",
        "selenium",
        "django",
        "flask",
        "fastapi",
        "uvicorn",
        "pydantic",
        "sqlalchemy",
        "pytest",
        "setuptools",
        "urllib3",
        "urllib",
        "cryptography",
        "paramiko",
        "pillow",
        "tensorflow",
        "pytorch",
        "torch",
        "torchvision",
        "transformers",
        "huggingface",
        "openai",
        "anthropic",
        "langchain",
        "boto3",
        "botocore",
        "awscli",
        "scikit-learn",
        "scikit",
        "opencv-python",
        "opencv",
        "jinja2",
        "aiohttp",
        "httpx",
        "redis",
        "celery",
        "psycopg2",
        "pymongo",
        "colorama",
        "tqdm",
        "jupyter",
        "notebook",
        "ipython",
        "playwright",
        "streamlit",
        "gradio",
        "plotly",
        "seaborn",
        "networkx",
        "pyyaml",
        "python-dotenv",
        "dotenv",
        "openpyxl",
        "python-docx",
        "reportlab",
        "pypdf",
        "pypdf2",
        "pdfplumber",
        "markdown",
        "click",
        "typer",
        "poetry",
        "virtualenv",
        "react",
        "react-dom",
        "redux",
        "express",
        "lodash",
        "axios",
        "webpack",
        "typescript",
        "eslint",
        "prettier",
        "moment",
        "jquery",
        "bootstrap",
        "tailwindcss",
        "tailwind",
        "mongoose",
        "sequelize",
        "prisma",
        "chalk",
        "commander",
        "nodemon",
        "puppeteer",
        "cheerio",
        "socket.io",
        "dayjs",
        "date-fns",
        "styled-components",
        "electron",
        "vite",
        "vitest",
        "jest",
        "mocha",
        "angular",
        "svelte",
        "nextjs",
        "nuxt",
        "gatsby",
        "graphql",
        "apollo",
        "passport",
        "jsonwebtoken",
        "bcrypt",
        "cross-env",
        "discord.js",
        "ethers",
        "stripe",
        "firebase",
        "supabase",
    ]
)
_LEGITIMATE = frozenset(
    [
        "preact",
        "scapy",
        "flash",
        "axiom",
        "network",
        "openapi",
        "prism",
        "https",
        "types",
        "python",
        "reactor",
        "stripes",
        "ether",
        "poetic",
        "request",
        "jinja",
        "numpyro",
        "bcryptjs",
        "moments",
        "notebooks",
    ]
)
_INSTALL = FilteredPattern(
    r"\b(?:pip3?|uv\spip|uv|poetry|npm|pnpm|yarn|bun)\s(?:install|add|i)\s([^\n;&|`#)]{1,300})"
)
_NAME = re.compile(r"(?<!\S)[\"']?(?!-)(?:@[\w.-]{1,40}/)?([a-z][a-z0-9._-]{3,40})")
_MIN_NAME_LENGTH = 5
_LONG = 7
_MAX_MATCHES = 20


def find_typosquats(text: NormalisedText) -> Iterator[tuple[int, str]]:
    """(offset, description) of names in install commands that differ from a known name by one
    letter omitted, doubled, changed or swapped."""
    if not _INSTALL.may_match(text.spaced):
        return
    for command in islice(_INSTALL.pattern.finditer(text.folded), _MAX_MATCHES):
        for name in islice(_NAME.finditer(command[1]), _MAX_MATCHES):
            meant = _find_intended_name(name[1].rstrip(".,"))
            if meant:
                at = command.start(1) + name.start(1)
                yield at, f"installs {name[1]!r}, a letter from {meant!r}"


def _find_intended_name(name: str) -> str:
    """The known name that is one letter away from `name`, "" for none."""
    pieces = {name, *re.split(r"[-_]", name)}
    if not pieces.isdisjoint(_KNOWN):
        return ""
    for piece in sorted(pieces - _LEGITIMATE):
        if len(piece) >= _MIN_NAME_LENGTH:
            near = next(
                (one for one in _BY_LENGTH if _is_typo_of(piece, one, whole=piece == name)), ""
            )
            if near:
                return near
    return ""


def _is_typo_of(name: str, known: str, *, whole: bool) -> bool:
    """Whether `name` is `known` with two letters swapped or one doubled, or, with `whole`, with a
    letter omitted, added or changed."""
    if abs(len(name) - len(known)) > 1:
        return False
    start = 0
    while start < min(len(name), len(known)) and name[start] == known[start]:
        start += 1
    rest, other = name[start:], known[start:]
    if len(rest) == len(other):
        swapped = len(rest) > 1 and rest[:2] == other[1::-1] and rest[2:] == other[2:]
        return swapped or (whole and len(known) >= _LONG and rest[1:] == other[1:])
    if len(rest) > len(other):
        doubled = start > 0 and rest[0] == name[start - 1]
        return rest[1:] == other and (doubled or (whole and len(known) >= _LONG))
    return whole and len(known) >= _LONG and rest == other[1:]


_BY_LENGTH = sorted(
    (one for one in _KNOWN if len(one) >= _MIN_NAME_LENGTH), key=lambda one: (-len(one), one)
)
