"""Base class of readers, and what they announce."""

from abc import ABC, abstractmethod


class media_ext_reader_op_impl(ABC):
    """A reader of the user's own."""

    @abstractmethod
    def __init__(self, params, fw_params): ...

    @abstractmethod
    def __iter__(self): ...

    @abstractmethod
    def __next__(self): ...

    @abstractmethod
    def __len__(self): ...

    @abstractmethod
    def gen_output_info(self): ...

    @abstractmethod
    def get_media_output_type(self): ...

    @abstractmethod
    def get_largest_file(self): ...


class media_ext_reader_op_tensor_info:
    """Type, shape (fastest dimension first) and layout of an output."""

    def __init__(self, dtype, shape, layout):
        self.dtype, self.shape, self.layout = dtype, shape, layout
