"""Cells composed: `recurrent.py` deep and bidirectional, `nn.py` drop-in for torch.nn, `init.py` how weights start;
`conditioning.py` with a context, `attention.py` over a memory, `output_recurrence.py` with edges from the output only.
"""

from recur.layers.attention import Attention
from recur.layers.conditioning import Conditioned
from recur.layers.dropout import drop_steps
from recur.layers.output_recurrence import OutputRecurrent
from recur.layers.recurrent import Recurred, Recurrent

__all__ = ["Attention", "Conditioned", "OutputRecurrent", "Recurred", "Recurrent", "drop_steps"]
