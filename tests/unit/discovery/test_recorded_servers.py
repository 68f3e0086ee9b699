"""Trees as they were recorded on real servers give the facts that these servers are known to have."""

from __future__ import annotations

from functools import cache

import pytest

from tests.servers import description
from tests.servers.facts import Facts, Trees


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Trees:
    return cache(lambda name: description.build(name, tmp_path_factory.mktemp(name)).root)


class TestDescribedServers(Facts):
    pass
