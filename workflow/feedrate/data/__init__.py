"""Datasets before training: fetch, verify, prepare. Knows neither models nor loaders."""
