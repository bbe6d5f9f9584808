"""Datasets before training: fetch, verify, prepare, store.

Does not know how a training job loads them, nor models.
"""
