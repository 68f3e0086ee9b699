"""Why a value does not fit, in words that state what would."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from netdra.model.claim import ResourceClaim
from netdra.model.documents import decode
from netdra.model.errors import InvalidInputError
from netdra.model.policy import DeviceExposurePolicy
from netdra.model.reasons import reason
from netdra.model.topology import NetworkTopology

POLICY = {"apiVersion": "networking.dra.io/v1alpha1", "kind": "DeviceExposurePolicy"}


def policy(**spec: Any) -> dict[str, Any]:
    return {**POLICY, "metadata": {"name": "p"}, "spec": {"selector": {"cel": "true"}, **spec}}


def said(value: Any, kind: type) -> str:
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert(value, kind)
    return reason(caught.value, kind)


@pytest.mark.parametrize(
    ("value", "kind", "words"),
    [
        (policy(action="expoze"), DeviceExposurePolicy, '"exclude", "expose"'),
        (policy(exposure={"taints": {"gone": "Maybe"}}), DeviceExposurePolicy, '"NoExecute", "NoSchedule"'),
        (
            {"metadata": {"name": "t"}, "spec": {"steps": [{"name": "a", "type": "b", "execution": "binary"}]}},
            NetworkTopology,
            '"Auto", "Binary"',
        ),
        ({**policy(), "kind": "Policy"}, DeviceExposurePolicy, '"DeviceExposurePolicy"'),
    ],
)
def test_an_invalid_enum_value_is_reported_with_the_valid_values(value: Any, kind: type, words: str) -> None:
    told = said(value, kind)
    assert sorted(told.rpartition("; one of ")[2].split(", ")) == sorted(words.split(", ")), told


def test_an_invalid_enum_value_is_reported_with_its_path() -> None:
    assert said(policy(action="x"), DeviceExposurePolicy).startswith(
        "Invalid enum value 'x' - at `$.spec.action`; one of "
    )


def test_a_word_of_the_authors_own_choice_is_not_taken_for_a_place() -> None:
    told = said(policy(action="x' - at `$.spec.selector`"), DeviceExposurePolicy)
    assert "; one of " in told


@pytest.mark.parametrize("value", [policy(priority="high"), policy(exposure=[]), {"spec": {}}, []])
def test_errors_other_than_invalid_enum_values_list_no_valid_values(value: Any) -> None:
    assert "one of" not in said(value, DeviceExposurePolicy)


def test_the_elements_of_lists_and_maps_are_found() -> None:
    class Place(msgspec.Struct):
        lists: dict[str, list[tuple[bool | DeviceExposurePolicy, ...]]]

    assert "; one of " in said({"lists": {"a": [[policy(), policy(action="x")]]}}, Place)


def test_an_error_in_a_document_names_its_file_and_object() -> None:
    with pytest.raises(InvalidInputError, match=r'file: DeviceExposurePolicy "p": .*"expose"'):
        decode(policy(action="x"), "file")


def test_claims_of_the_api_have_such_words_too() -> None:
    claim = {
        "metadata": {"name": "c"},
        "spec": {
            "devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "d", "allocationMode": "Some"}}]}
        },
    }
    assert '"All"' in said(claim, ResourceClaim)
