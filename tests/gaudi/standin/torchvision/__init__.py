"""One import of optimum-habana (a tokenizer that nobody uses here) asks for `transforms`.

Without metadata, transformers takes torchvision for absent, as it is.
"""

transforms = None
