"""Kinds of figures, a file each: `NEEDS` are its inputs (see `report.params.FILES`), `ORDER` is its
place in the overview; both are literals, because planning reads them without importing the file.
`render` draws settings and result rows with `canvas`, which is the name of `_canvas` in each file:
the page's program takes `as_svg` from there."""
