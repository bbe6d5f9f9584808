"""Kinds of figures, a file each: `ORDER` is its place in the overview, a literal, because it is
read without importing the file. `render` draws settings and result rows with `canvas`, which is the
name of `_canvas` in each file: `pages` takes `as_svg` from there."""
