"""In which form nodes publish supportedCNIs, so that DeviceClasses ask for it in that form (decision D6).

Asked by `netdra.controller.controller` at its start and when nodes report otherwise. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from netdra.kube.features import LIST_ATTRIBUTES
from netdra.model.device import Features
from netdra.model.node_network import NodeReport


def published(nodes: Iterable[NodeReport]) -> Features | None:
    """The form that most nodes publish it in; None if none says so.

    All of them ask one API server; while its replicas or theirs are being replaced they may differ for a while.
    """
    said = [node.status.features for node in nodes if node.status is not None and node.status.features]
    forms = Counter(LIST_ATTRIBUTES in features for features in said)
    if not forms:
        return None
    return Features(list_attributes=forms[True] > forms[False])
