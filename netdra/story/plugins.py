"""The story of a CNIPlugin: on which nodes it is installed, its schema, and the failures that nodes report. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from netdra.cluster.objects import ClusterState
from netdra.model.cni_plugin import CNIPlugin, CNIPluginStatus
from netdra.model.suggestions import hint
from netdra.story.statement import Statement, Story, absent, done, fact, story_of, wrong

_REQUIRED = ("Installed", "SchemaApplied")
"""The conditions that must be True."""


def plugin_story(cluster: ClusterState, name: str) -> Story:
    """The story of a plugin that netdra installs."""
    subject = f"CNIPlugin {name}"
    plugin = next((entry for entry in cluster.plugins if entry.name == name), None)
    if plugin is None:
        unread = cluster.unread.get("cniplugins", "")
        text = unread or f'CNIPlugin "{name}" does not exist'
        next_step = hint(name, (entry.name for entry in cluster.plugins), "CNIPlugins:")
        return absent(subject, unread, wrong(subject, text, next_step, code="ND5037"))
    status = plugin.status or CNIPluginStatus()
    state = f"is installed on {status.ready_nodes} of {status.desired_nodes} nodes"
    return story_of(subject, state, _statements(plugin, status), cluster.unread.values())


def _statements(plugin: CNIPlugin, status: CNIPluginStatus) -> Iterator[Statement]:
    about = f"CNIPlugin {plugin.name}"
    if not status.conditions:
        yield wrong(
            about,
            "no status: netdra's controller has not installed it",
            "netdra doctor",
            reason="NoStatus",
            code="ND5038",
        )
    for condition in status.conditions:
        text, time = f"{condition.type}: {condition.message}", condition.last_transition_time
        if condition.type in _REQUIRED and condition.status == "False":
            details = [f"{failure.node}: {failure.message}" for failure in status.failures]
            next_step = f"correct what the text names: kubectl describe cniplugin {plugin.name}"
            yield wrong(about, text, next_step, reason=condition.reason, time=time, details=details, code="ND5039")
        else:
            yield done(about, text, reason=condition.reason, time=time)
    for version in status.versions:
        supported = f", CNI {', '.join(version.cni_versions)}" if version.cni_versions else ""
        yield fact(about, f"{version.nodes} nodes have the program {version.digest[:12]}{supported}")
