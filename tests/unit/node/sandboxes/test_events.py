"""The reports of a pod whose network fails: an event and a log line of the node's driver, both with the code."""

from __future__ import annotations

import json
import logging

import pytest

from netdra.kube.events import Occurrence
from netdra.model.errors import PermanentError
from netdra.node.nri.hooks import Sandbox
from netdra.node.sandboxes.events import PodEvents
from netdra.ops.logs import Json

BOX = Sandbox(id="sb-1", name="p1", namespace="ns", uid="p-1")


def test_a_refused_pod_s_event_and_log_line_have_code_and_next_step(caplog: pytest.LogCaptureFixture) -> None:
    told: list[Occurrence] = []
    PodEvents(told.append, "node-1").report_failure(
        BOX, PermanentError("the device is gone", hint="delete the pod", code="ND2001")
    )
    (event,) = told
    assert (event.note, event.next_step) == ("the device is gone; delete the pod (ND2001)", "delete the pod")
    (record,) = caplog.get_records("call")
    assert record.levelno == logging.WARNING
    line = json.loads(Json().format(record))
    assert (line["code"], line["hint"], line["pod"]) == ("ND2001", "delete the pod", "ns/p1")
