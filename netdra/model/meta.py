"""The parts of Kubernetes object metadata that netdra reads and writes (k8s.io/apimachinery/pkg/apis/meta/v1)."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Literal

import msgspec

MAX_REPORTED = 16
"""How many entries a status of netdra's keeps of what may be many; the first ones."""


def order(version: str) -> int:
    """A resourceVersion as a number: since 1.35 Kubernetes promises that those of one kind are rising integers."""
    return int(version or 0)


class OwnerReference(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The object that another one belongs to and is deleted with."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool = False


class ObjectMeta(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """An object's name, namespace, and further metadata. Fields that netdra does not use are dropped on reading."""

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    finalizers: tuple[str, ...] = ()
    owner_references: tuple[OwnerReference, ...] = ()

    @property
    def is_ending(self) -> bool:
        """Whether the object is being deleted."""
        return self.deletion_timestamp is not None


class Condition(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One aspect of an object's state, as k8s.io/apimachinery's metav1.Condition.

    Attributes:
        type: The aspect, in CamelCase, e.g. `Ready`.
        status: Whether the condition is true, e.g. `True`; `Unknown` if netdra cannot determine it.
        reason: The cause, as one CamelCase word for programs, e.g. `DeviceClassesReady`.
        message: The cause, as text for people, e.g. `all DeviceClasses are up to date`. If absent, the reason
            explains it.
        last_transition_time: The time of the last change of `status`, in RFC 3339, e.g. `2026-11-22T10:00:00Z`. If
            absent, the time is not known.
        observed_generation: The generation of the object that the condition describes, e.g. `2`; 0 if the generation is
            not known.
    """

    type: str
    status: Literal["True", "False", "Unknown"]
    reason: str
    message: str = ""
    last_transition_time: str = ""
    observed_generation: int = 0


class LabelSelectorRequirement(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """One condition on a label.

    Attributes:
        key: The label's key, e.g. `topology.kubernetes.io/zone`.
        operator: The relation between the label and the values, e.g. `In`. `In` and `NotIn` require `values`; `Exists`
            and `DoesNotExist` do not allow `values`.
        values: The values of `In` and `NotIn`, e.g. `[a, b]`. If absent, none, as `Exists` and `DoesNotExist` require.
    """

    key: str
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether the labels meet it. As in Kubernetes, NotIn holds where the label is absent."""
        if self.operator == "Exists":
            return self.key in labels
        if self.operator == "DoesNotExist":
            return self.key not in labels
        inside = self.key in labels and labels[self.key] in self.values
        return inside if self.operator == "In" else not inside


class LabelSelector(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True
):
    """Conditions on labels, all of which must hold; none holds always.

    Attributes:
        match_labels: Labels that an object must have with exactly these values, e.g. `{node-role.kubernetes.io/worker:
            ""}`. If absent, any.
        match_expressions: Further conditions, all of which must be true, e.g. `[{key: gpu, operator: Exists}]`. If
            absent, none.
    """

    match_labels: Mapping[str, str] = {}
    match_expressions: tuple[LabelSelectorRequirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether the labels meet every condition."""
        return all(labels.get(key) == value for key, value in self.match_labels.items()) and all(
            requirement.matches(labels) for requirement in self.match_expressions
        )


def time_text(moment: datetime) -> str:
    """A time as the API writes `metav1.Time`: RFC 3339, whole seconds, UTC."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def time_of(text: str) -> datetime:
    """A time in RFC 3339, with its zone.

    Raises:
        ValueError: the text is not one.
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f'"{text}" is not a time in RFC 3339') from None
    if moment.tzinfo is None:
        raise ValueError(f'time "{text}" has no zone')
    return moment


def micro_time_text(moment: datetime) -> str:
    """A time as the API writes `metav1.MicroTime`."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
