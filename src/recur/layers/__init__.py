"""Cells composed: `recurrent.py` deep and bidirectional, `nn.py` drop-in for torch.nn, `init.py` how weights start."""

from recur.layers.recurrent import Recurred, Recurrent

__all__ = ["Recurred", "Recurrent"]
