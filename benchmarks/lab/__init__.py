"""A laboratory of planted faults: runs whose limit is known, and what the product says of them."""
