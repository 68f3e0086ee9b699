"""Pictures of a graph: `layout` places boxes and lines, `terminal` and `document` draw them. All is pure."""
