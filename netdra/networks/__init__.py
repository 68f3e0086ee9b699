"""PodNetworks as arithmetic: the addresses of ranges, which of them are free, and which one an interface gets. Pure.

Used by `netdra.controller`, which assigns addresses, and by `netdra.rules`, which checks what administrators write.
"""
