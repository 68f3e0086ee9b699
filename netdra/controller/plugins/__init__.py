"""CNIPlugins: the DaemonSets that install them on nodes, and their statuses."""
