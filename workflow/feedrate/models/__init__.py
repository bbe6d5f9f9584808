"""The models: one file each with its builder, sizes, offers and heads; layers, checkpoints, FLOPs.

Does not know loaders or jobs.
"""
