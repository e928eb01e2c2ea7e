"""Write metrics.md from the code, or check with --check that it is up to date."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from workers.monitoring.metric_specs import DEPLOYMENT_METRICS, PROCESS_METRICS, MetricSpec

PAGE = Path(__file__).with_name("metrics.md")

_HEAD = """\
# Metrics

Figures for Prometheus, in its text format. A worker tells them at `/metrics` on
`workers.metrics_host` and `workers.metrics_port`, and so does `skillbus consume`; `skillbus serve`
and `skillbus gateway` on their socket or port.
[How to see what happens](../how-to/see-what-happens.md) says how to scrape and read them. This page
is written by `python docs/reference/metrics.py`.

## Of each process

What its tasks did since it began. Add up what workers tell.

"""

_DEPLOYMENT_HEAD = """
## Of the deployment

Asked of the servers at a scrape, at most once in five seconds. Every worker tells the same, so take
the greatest. What a server that is away would have told is left out. `skillbus_workers`,
`skillbus_running_tasks` and `skillbus_server_…` are there in a distributed deployment only.

"""


def page() -> str:
    """The whole page."""
    return "".join(
        [
            _HEAD,
            *_table(PROCESS_METRICS),
            _DEPLOYMENT_HEAD,
            *_table(DEPLOYMENT_METRICS),
        ]
    )


def _table(series: Iterable[MetricSpec]) -> Iterable[str]:
    yield "| name | kind | labels | meaning |\n| --- | --- | --- | --- |\n"
    for one in series:
        labels = ", ".join(f"`{label}`" for label in one.labels)
        yield f"| `{one.name}` | {one.kind} | {labels} | {one.meaning} |\n"


def main() -> None:
    """Write the page, or say that it is stale."""
    if sys.argv[1:] != ["--check"]:
        PAGE.write_text(page(), encoding="utf-8")
    elif not PAGE.exists() or PAGE.read_text(encoding="utf-8") != page():
        sys.exit("docs/reference/metrics.md is stale; run `python docs/reference/metrics.py`")


if __name__ == "__main__":
    main()
