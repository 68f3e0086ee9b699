"""Neutron and Keystone, the real ones, for tests: an environment of their own and two processes on loopback."""
