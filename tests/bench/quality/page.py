"""The page and its plots, rendered from the results file."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from tests.bench.quality import (
    ablation,
    answers,
    bundles,
    confidence,
    links,
    passages,
    roles,
    routing,
    sizes,
)
from tests.bench.quality.figures import EMPTY

SECTIONS: Mapping[str, ModuleType] = {
    "sizes": sizes,
    "routing": routing,
    "ablation": ablation,
    "confidence": confidence,
    "bundles": bundles,
    "answers": answers,
    "passages": passages,
    "roles": roles,
    "links": links,
}
TEMPLATE = Path(__file__).with_name("page.md")
DOCS = Path(__file__).resolve().parents[3] / "docs" / "explanation"
RESULTS = "quality.json"
PLOTS = "quality"
FORMAT = 1
NOT_MEASURED = "*Not measured.*"

_BLOCK = re.compile(r"\{\{(\w+)\.(\w+)\}\}")
_FIGURE = re.compile(r"\{\s+(\"value\"[^{}]*?)\s+\}")
_PLOT = re.compile(r"\{\{plot (\w+): ([^}]+)\}\}")


def render_files(results: Mapping[str, Any], template: str) -> dict[str, bytes]:
    """Path below DOCS -> content of the page and of each plot.

    Raises ValueError for a block that the template names and its section does not make, and for
    one that the template leaves out.
    """
    found = results["sections"]
    blocks: dict[str, str] = {
        f"{name}.{block}": text
        for name, module in SECTIONS.items()
        if name in found
        for block, text in module.render(found[name]).items()
    }
    blocks["about.encoder"] = results["about"]["encoder"]
    blocks["about.trial"] = _trial(results["about"])
    plots: dict[str, Callable[[], bytes]] = {
        plot: draw
        for name, module in SECTIONS.items()
        if name in found and hasattr(module, "plots")
        for plot, draw in module.plots(found[name]).items()
    }
    _check_template(template, blocks, set(plots), set(found))

    def block(match: re.Match[str]) -> str:
        name, alone = f"{match[1]}.{match[2]}", match[0] in template.splitlines()
        return blocks.get(name, NOT_MEASURED if alone else EMPTY)

    def plot(match: re.Match[str]) -> str:
        return f"![{match[2]}]({PLOTS}/{match[1]}.svg)" if match[1] in plots else ""

    page = _PLOT.sub(plot, _BLOCK.sub(block, template))
    page = re.sub(r"\n{3,}", "\n\n", page).strip() + "\n"
    return {"quality.md": page.encode()} | {
        f"{PLOTS}/{name}.svg": draw() for name, draw in plots.items()
    }


def _check_template(
    template: str, blocks: Mapping[str, str], plots: set[str], measured: set[str]
) -> None:
    named = {f"{section}.{name}" for section, name in _BLOCK.findall(template)}
    unknown = {one for one in named if one.partition(".")[0] not in {*SECTIONS, "about"}}
    unused = (set(blocks) - named) | (plots - {name for name, _ in _PLOT.findall(template)})
    if unknown or unused:
        raise ValueError(f"page.md: unknown {sorted(unknown)}, left out {sorted(unused)}")


def _trial(about: Mapping[str, Any]) -> str:
    if not about["sample"]:
        return ""
    return f"**A trial run**: at most {about['sample']} rows of each label file were measured."


def read_results(folder: Path = DOCS) -> dict[str, Any]:
    """The results file; raises ValueError if it is of another format."""
    results: dict[str, Any] = json.loads((folder / RESULTS).read_text(encoding="utf-8"))
    if results.get("format") != FORMAT:
        raise ValueError(f"{RESULTS} is not of format {FORMAT}")
    return results


def find_stale(folder: Path = DOCS) -> list[str]:
    """The paths of the page and plots that are not what the results file gives."""
    files = render_files(read_results(folder), TEMPLATE.read_text(encoding="utf-8"))
    there = {f"{PLOTS}/{path.name}" for path in (folder / PLOTS).glob("*")}
    differing = [
        name
        for name, content in files.items()
        if not (folder / name).exists() or (folder / name).read_bytes() != content
    ]
    return differing + sorted(there - set(files))


def write_files(folder: Path = DOCS) -> None:
    """Write the page and its plots; delete plots that are no longer drawn."""
    files = render_files(read_results(folder), TEMPLATE.read_text(encoding="utf-8"))
    (folder / PLOTS).mkdir(exist_ok=True)
    for path in (folder / PLOTS).glob("*.svg"):
        path.unlink()
    for name, content in files.items():
        (folder / name).write_bytes(content)


def write_results(results: Mapping[str, Any], folder: Path = DOCS) -> None:
    """Write the results file, with a line per figure so that changes can be read."""
    text = json.dumps(results, indent=1, ensure_ascii=False)
    compact = _FIGURE.sub(lambda match: "{" + " ".join(match[1].split()) + "}", text)
    (folder / RESULTS).write_text(compact + "\n", encoding="utf-8")
