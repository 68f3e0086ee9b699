"""The cloud that modules of tests use one after the other is the same for each of them."""

from __future__ import annotations

import pytest

from testbed.openstack.cloud import Cloud, RefusedError


def test_a_restored_cloud_has_nothing_that_was_made_or_set_before(empty_cloud: Cloud) -> None:
    for _ in range(2):
        network = empty_cloud.network("data", "physnet2", ["10.20.0.0/24"])
        empty_cloud.make("port", network_id=network["id"], project_id=network["project_id"])
        empty_cloud.limit(1)
        with pytest.raises(RefusedError, match="OverQuota"):
            empty_cloud.make("port", network_id=network["id"], project_id=network["project_id"])
        empty_cloud.allow(get_network="role:nobody")
        pids = [process.pid for process in empty_cloud.processes.values()]
        empty_cloud.restore()
        assert empty_cloud.ports() == []
        assert empty_cloud.admin("neutron", "GET", "/v2.0/networks")["networks"] == []
        assert [process.pid for process in empty_cloud.processes.values()] == pids, "a start takes long"
