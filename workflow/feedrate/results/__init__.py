"""Records, and the results computed from them: checks, cells, verdicts, claims, comparisons.

Owns the schema of every measured value. Does not know devices or torch.
"""
