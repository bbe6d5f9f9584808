"""Figures: each file is a kind of figure, under the file's name.

A file declares `NEEDS` (the inputs, see `report.params.FILES`) and `ORDER` (its place in the
overview), and defines `render`, which turns settings and result rows into a figure. Planning reads
the declarations without importing the file. All figures draw with `_canvas`.
"""
