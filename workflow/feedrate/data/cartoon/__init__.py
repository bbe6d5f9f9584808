"""Drawn cartoons: what is in one (scene), how it is put in words, and how it is drawn."""
