"""Records and what is computed from them: checks, statistics, cells, verdicts, claims, comparisons.

Owns the schema of every measured value. Does not know devices or torch.
"""
