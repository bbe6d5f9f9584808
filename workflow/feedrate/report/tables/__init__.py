"""Kinds of tables, a file each: `NEEDS` are its inputs (see `report.params.FILES`), `ORDER` is its
place in the overview; both are literals, because planning reads them without importing the file.
`render` turns settings and result rows into HTML."""
