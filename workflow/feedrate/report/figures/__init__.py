"""Figures. A file here has `FIGURES: tuple[chart.Figure, ...]`; a figure's function turns a study's
results into a picture, or into None where there is nothing to show."""
