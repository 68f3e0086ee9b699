"""Types are decoded by many threads at once, from the first moment."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_RACE = """
import sys, threading
import msgspec
import netdra.node.daemon
from netdra.model import decoders

sys.setswitchinterval(1e-6)
decoders.build()

def decode(kind, together):
    together.wait()
    try:
        msgspec.convert(dict.fromkeys(kind.__struct_encode_fields__, 1), kind)
    except (msgspec.ValidationError, TypeError):
        pass

for kind in sorted(decoders._types(msgspec.Struct), key=str):
    together = threading.Barrier(4)
    threads = [threading.Thread(target=decode, args=(kind, together)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
"""


def test_threads_that_decode_a_type_for_the_first_time_do_not_crash_the_process() -> None:
    done = subprocess.run(
        (sys.executable, "-X", "faulthandler", "-c", _RACE),
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
