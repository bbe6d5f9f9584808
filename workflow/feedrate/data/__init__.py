"""Datasets before training: fetch, verify, prepare, store.

Knows neither models nor how a training job loads the data.
"""
