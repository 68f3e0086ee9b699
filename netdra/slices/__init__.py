"""Devices to ResourceSlices (`pack`), and ResourceSlices to allocations (`allocator`). Pure."""
