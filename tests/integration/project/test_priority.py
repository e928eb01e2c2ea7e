"""Embedding lowers its thread's priority, and never raises it: that would take a privilege."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import os, threading
os.nice(19)
from tasks.ingest.embed_sections import lower_thread_priority
lower_thread_priority()
print(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="threads have a priority on Linux alone")
def test_embedding_never_raises_a_priority() -> None:
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=200, check=True
    )
    assert int(run.stdout) == 19


ENCODING = """
import os, threading
from config.settings import EncoderSettings
from search.models.load_models import load_encoder
from tasks.ingest.embed_sections import lower_thread_priority

def list_priorities():
    threads = os.listdir("/proc/self/task")
    return [os.getpriority(os.PRIO_PROCESS, int(one)) for one in threads]

encoder = load_encoder(EncoderSettings())
vectors = [encoder.encode_queries(["a loom"])]
print(list_priorities().count(15))

def encode_in_bulk():
    lower_thread_priority()
    vectors.append(encoder.encode_queries(["a loom"]))
    # This thread is one of them.
    print(list_priorities().count(15) - 1)

thread = threading.Thread(target=encode_in_bulk)
thread.start()
thread.join()
print((vectors[0] == vectors[1]).all())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="threads have a priority on Linux alone")
def test_bulk_encoding_runs_in_threads_of_low_priority() -> None:
    run = subprocess.run(
        [sys.executable, "-c", ENCODING], capture_output=True, text=True, timeout=300, check=True
    )
    before, during, same = run.stdout.split()
    assert int(before) == 0
    assert int(during) >= 1
    assert same == "True"
