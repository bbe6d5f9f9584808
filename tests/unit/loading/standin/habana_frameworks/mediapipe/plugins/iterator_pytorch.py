"""The pipeline's batches as tensors."""


class HPUGenericPytorchIterator:
    """Each `iter` is an epoch; each `next` the list of the graph's outputs."""

    def __init__(self, mediapipe):
        self.pipe = mediapipe
        self.pipe.build()
        self.len = self.pipe.get_batch_count()

    def __len__(self):
        return self.len

    def __iter__(self):
        self.pipe.iter_init()
        return self

    def __next__(self):
        return self.pipe.run()
