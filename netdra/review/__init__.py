"""One review of an object: which rules hold for its kind, in which order, and what they go by.

The webhook, `netdra validate` and the controller ask here, and differ only in the world that they give (a copy of the
cluster, files, one schema) and in how they show what is found. The rules themselves are in `netdra.rules`. Pure.
"""
