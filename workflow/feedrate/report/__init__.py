"""Tables, figures, sentences and pages, made from result files.

Owns how numbers are shown. Does not know how a number was measured.
"""
