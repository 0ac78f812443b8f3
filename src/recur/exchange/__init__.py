"""Exchange with other libraries: saved models for the Hugging Face Hub, and weights of torch.nn and Keras."""

from recur.exchange.hub import pretrained_folder, save_pretrained

__all__ = ["pretrained_folder", "save_pretrained"]
