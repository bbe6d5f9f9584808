"""The project's own speed, as ratios taken side by side in one run: `make bench`."""
