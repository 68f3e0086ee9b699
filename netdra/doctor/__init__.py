"""Checks whether a cluster, its cloud and a node can run netdra.

Called by `netdra doctor`. Facts are gathered at the edge (`…_look`); pure functions judge them (`…_verdicts`).
"""
