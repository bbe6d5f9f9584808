"""Datasets: fetching, verifying and preparing them, and loading them in a training job."""
