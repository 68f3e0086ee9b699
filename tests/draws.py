"""The seed of random tests: a number that is the same in each run of a commit, and another one in the next commit.

So a commit that passed passes again, and the commits together see many cases. `make explore` draws from chance, and
more (`NETDRA_DRAW=anew`); NETDRA_SEED=NUMBER repeats a run.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import subprocess
from functools import cache
from pathlib import Path

ANEW = os.environ.get("NETDRA_DRAW") == "anew"
_BITS = 32


@cache
def seed() -> int:
    """The number, below 2^32."""
    named = os.environ.get("NETDRA_SEED")
    if named:
        return int(named)
    return secrets.randbits(_BITS) if ANEW else _of_commit()


def count(short: int, long: int) -> int:
    """How many cases a test draws: in `make test`, and in `make explore`."""
    return long if ANEW else short


def _of_commit() -> int:
    """A number for the files that are committed; another one where nothing is known of commits, always the same."""
    command = ("git", "rev-parse", "--verify", "--quiet", "HEAD^{tree}")
    try:
        done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, check=False)
        tree = done.stdout.strip() if done.returncode == 0 else b""
    except OSError:
        tree = b""
    return int.from_bytes(hashlib.sha256(tree).digest()[: _BITS // 8], "big")
