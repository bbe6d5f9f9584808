"""The typed configuration (settings, studies, devices, published data) and the plan, which turns
studies and devices into cells and runs."""
