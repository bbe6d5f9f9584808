"""What a cluster's scheduler knows of jobs."""
