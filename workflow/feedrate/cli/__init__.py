"""The commands that people type: run, plan, tune, compare, cancel; and all that a terminal shows.

Owns progress, summaries and tables on the terminal. Knows every room below it, but not how a
number is measured.
"""
