"""Kinds of tables, a file each: `ORDER` is its place in the overview, a literal, because it is read
without importing the file. `render` turns settings and result rows into HTML."""
