"""The measured programs: a parent starts, watches and ends a run; its child trains or infers."""
