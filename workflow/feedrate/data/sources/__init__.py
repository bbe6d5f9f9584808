"""Where datasets come from: each source turns its settings into rows and checked image files."""
