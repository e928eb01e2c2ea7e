"""Child processes that share no state with the test process, without the time for its imports.

They are forked from a process that has only imported the modules of these tests: neither threads
nor connections of the test process are in them.
"""

from __future__ import annotations

import multiprocessing

FRESH = multiprocessing.get_context("forkserver")
"""The `multiprocessing` context of these processes."""

FRESH.set_forkserver_preload(
    [
        "tests.contract.test_answer_store",
        "tests.contract.test_search_index",
        "tests.contract.test_usage",
        "tests.integration.servers.test_neo4j",
        "tests.support.program.asking",
    ]
)
