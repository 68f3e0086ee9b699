"""The webhook's answers."""

from __future__ import annotations

import json

from netdra.admission.messages import MAX_WARNING, Verdict, answer


def test_a_warning_is_as_long_as_the_api_server_takes_and_keeps_its_code() -> None:
    short, long = "mode is unwise (ND1015)", f"mode is unwise: {'x' * 300} [spec.steps[0].config.mode] (ND1015)"
    body = json.loads(answer("1", Verdict(warnings=(short, long))))
    first, second = body["response"]["warnings"]
    assert first == short
    assert len(second) == MAX_WARNING
    assert second.startswith("mode is unwise: xxx")
    assert second.endswith("xxx… (ND1015)")
