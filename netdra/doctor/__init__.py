"""What a cluster, its cloud and a node lack to run netdra.

Called by `netdra doctor`. Facts are gathered at the edge (`…_look`); what they mean is decided purely (`…_verdicts`).
"""
