"""The addresses of PodNetworks: assigned to claims, kept, released, and counted for the scheduler."""
