"""Services on PodNetworks: their pods, and the EndpointSlices that follow."""
