"""Models by name: their sizes, weights, tokenizers and work a sample."""
