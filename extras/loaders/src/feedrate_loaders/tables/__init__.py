"""Tables that feedrate's report can show."""
