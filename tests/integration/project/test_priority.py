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

def get_priority(thread):
    return os.getpriority(os.PRIO_PROCESS, thread)

def count_threads_below(priority):
    # The greater the number, the lower the priority.
    return sum(get_priority(int(one)) > priority for one in os.listdir("/proc/self/task"))

main = threading.get_native_id()
normal = get_priority(main)
encoder = load_encoder(EncoderSettings())
vectors = [encoder.encode_queries(["a loom"])]
print(count_threads_below(normal))

def encode_in_bulk():
    lower_thread_priority()
    own = threading.get_native_id()
    if get_priority(own) == normal:
        # The tests themselves run at the priority of bulk encoding.
        os.setpriority(os.PRIO_PROCESS, own, normal + 1)
    vectors.append(encoder.encode_queries(["a loom"]))
    # This thread is one of them.
    print(count_threads_below(normal) - 1)

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
