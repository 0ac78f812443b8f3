"""Exchange with other libraries: saved models for the Hugging Face Hub, and weights of torch.nn and Keras."""

from recur.exchange.hub import pretrained_folder, save_pretrained
from recur.exchange.imported_runs import import_run
from recur.exchange.weights import ForeignModel, read_weights

__all__ = ["ForeignModel", "import_run", "pretrained_folder", "read_weights", "save_pretrained"]
