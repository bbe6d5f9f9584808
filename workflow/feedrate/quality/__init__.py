"""Quality: what a model scores before and after it was trained."""
