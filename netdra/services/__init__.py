"""Services of PodNetworks: which addresses they publish, and the EndpointSlices for that. Pure.

Used by `netdra.controller.services.endpoints`, which watches Services and pods and writes the EndpointSlices.
"""
