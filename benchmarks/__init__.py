"""The project's own speed, as ratios of timings from one session: `make bench`."""
