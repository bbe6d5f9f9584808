"""Device adapters: all that differs between cpu, cuda and hpu, and what the host is."""
