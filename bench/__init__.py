"""`make bench`: netdra's figures, each measured beside its peer or its limit in one run and reported as a ratio."""
