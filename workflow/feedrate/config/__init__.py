"""The typed configuration, and the plan: studies and devices become cells and runs."""
