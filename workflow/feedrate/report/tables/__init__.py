"""Tables: each file is a kind of table, under the file's name.

A file declares `NEEDS` (the inputs, see `report.params.FILES`) and `ORDER` (its place in the
overview), and defines `render`, which turns settings and result rows into HTML. Planning reads the
declarations without importing the file.
"""
