"""The advice: which loader settings to use on this machine, why, and what to expect."""
