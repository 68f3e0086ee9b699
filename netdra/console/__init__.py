"""A read-only web page of the cluster: nodes and their devices, a pod's network, *why*, and a forecast of policies.

Run by `netdra console`. `live_cluster` reads the cluster, `examination` finds the problems in it, and `traffic` reads
the rates of pods' interfaces. `markup` builds HTML that is escaped by construction; `frame`, `fleet`, `node_page`,
`pod_page`, `story_page` and `forecast_page` are pure: they turn values into pages. `routes` reads URLs, `access` knows
who may read, and `server` answers requests.
"""
