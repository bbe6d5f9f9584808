"""Fused kernels: only their names are asked for."""


class FusedSDPA:
    """The fused attention, which no model here takes."""
