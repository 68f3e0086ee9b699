"""Releases of netdra: which version a build has, what `make release` builds, and how a release is verified."""
