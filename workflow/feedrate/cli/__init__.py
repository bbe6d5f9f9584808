"""The commands run, plan, compare and cancel; the programs that rules start; what a terminal
shows: progress, summaries and tables.

Knows every room below it, but not how a number is measured.
"""
