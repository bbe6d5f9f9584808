"""Tables, one kind a file: each turns rows and settings into HTML, and knows nothing of files."""
