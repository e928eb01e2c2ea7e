"""A process that asks the language model is killed again and again: no answer is paid for twice."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest

from tests.support.program import asking

KILLS = int(os.environ.get("SKILLBUS_PAID_ONCE_KILLS", "10"))
SEED = int(os.environ.get("SKILLBUS_PAID_ONCE_SEED", "0")) or random.randrange(1 << 30)
QUESTIONS = 8 * KILLS
THREADS = 4
SECONDS = 0.15


@pytest.mark.slow
@pytest.mark.timeout(300 + KILLS * 20)
def test_every_answer_is_delivered_once_whenever_the_process_is_killed(tmp_path: Path) -> None:
    """Every moment but one: an answer that has been sent and is not committed yet is lost with the
    process. `python -m tests.bench.refine_kills` kills at that moment too and counts."""
    print(f"SKILLBUS_PAID_ONCE_SEED={SEED}")
    chance = random.Random(SEED)
    with asking.NumberServer(SECONDS) as server:
        for _ in range(KILLS):
            before = server.requests
            process = asking.start(tmp_path, server, QUESTIONS, THREADS)
            server.wait_for_requests(before + 1)
            time.sleep(chance.uniform(0, 3 * SECONDS))
            with server.nothing_sent():
                wait_until_stored(server, tmp_path)
                process.kill()
                process.join()
        early = server.deliveries.total()
        assert 0 < early < QUESTIONS, "the kills came while questions were open"
        process = asking.start(tmp_path, server, QUESTIONS, THREADS)
        process.join(240)
        assert process.exitcode == 0
        server.settle()
        assert asking.stored_numbers(tmp_path, QUESTIONS) == set(range(QUESTIONS))
        assert server.deliveries == dict.fromkeys(range(QUESTIONS), 1)


def wait_until_stored(server: asking.NumberServer, home: Path) -> None:
    """Wait until every answer that was sent is stored."""
    end = time.monotonic() + 60
    delivered = {number for number, times in server.deliveries.items() if times}
    while not delivered <= asking.stored_numbers(home, QUESTIONS):
        assert time.monotonic() < end, "an answer that was sent is not stored"
        time.sleep(0.002)
