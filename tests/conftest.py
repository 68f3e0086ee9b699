"""What holds for the tests of every level: they stay inside the checkout, and property tests draw alike in each run.

With NETDRA_DRAW=anew they draw new examples.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ["tests.confined"]
# The assertions there belong to tests, too.
pytest.register_assert_rewrite("tests.servers.facts")

# Examples touch the kernel, threads and files, on machines that do other things too: none of them is timed.
_UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)

settings.register_profile("same", _UNHURRIED, derandomize=True)
settings.register_profile("anew", _UNHURRIED)
settings.load_profile(os.environ.get("NETDRA_DRAW", "same"))
