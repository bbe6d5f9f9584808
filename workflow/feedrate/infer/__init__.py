"""The inference job: forward passes alone, timed one by one."""
