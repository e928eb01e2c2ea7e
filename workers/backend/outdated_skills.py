"""Parses all skills of a library again that are of an older version of the parser."""

from __future__ import annotations

import time
from contextlib import ExitStack

from config.errors import UsageError
from config.settings import Settings
from skills.parsing.parse_skill import PARSER_VERSION
from tasks.ingest.maintain import advance_sequence
from tasks.ingest.upgrade.reindex import ReportProgress
from tasks.ingest.upgrade.reparse import reparse_outdated
from tasks.policies import MAINTAIN, Deadline
from workers.backend.home import WriterLock
from workers.backend.stores import open_coordinator, open_graph, open_services, send_nothing
from workers.processes.current_process import unique_process_name

_POLL_SECONDS = 0.05


def count_outdated(settings: Settings) -> int:
    """Return the number of skills that are of an older version of the parser."""
    with ExitStack() as stack:
        graph = open_graph(settings, stack, writable=settings.distributed)
        return graph.count_parsed_before(PARSER_VERSION)


def reparse_library(settings: Settings, progress: ReportProgress) -> int:
    """Parse all of them again; returns how many.

    Skills for which an ingest is requested are left to it. Raises UsageError while another process
    writes to the home.
    """
    with ExitStack() as stack:
        coordinator = None
        if settings.distributed:
            coordinator = open_coordinator(settings, stack, lambda _: 0, unique_process_name())
        else:
            _lock_home(settings, stack)
        services = open_services(
            settings, stack, send_nothing, writable=True, coordinator=coordinator
        )
        advance_sequence(services)
        total, done, is_due = services.graph.count_parsed_before(PARSER_VERSION), 0, True
        while is_due:
            # The reconciler would delete revisions that are not published yet.
            with services.coordinator.try_lock("maintain") as acquired:
                if acquired:
                    step = reparse_outdated(services, Deadline(MAINTAIN.time_limit))
                    done, is_due = done + step, step > 0
            progress(done, total)
            time.sleep(0 if acquired else _POLL_SECONDS)
        return done


def _lock_home(settings: Settings, stack: ExitStack) -> None:
    lock = WriterLock(settings.home)
    try:
        lock.acquire()
    except UsageError as error:
        raise UsageError(
            f"skills are of an older version of the parser, but {error}; `skillbus serve` parses "
            "them again by itself"
        ) from error
    stack.callback(lock.release)
