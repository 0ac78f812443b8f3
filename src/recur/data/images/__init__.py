"""Images with labels: `files.py` reads one from a file, `collection.py` a folder of folders or an .npz. No torch."""

from recur.data.images.arrays import Arrays, find_arrays, split_name
from recur.data.images.collection import Image, image_files, is_image_folder, read_images, same_channels
from recur.data.images.files import SUFFIXES, Pixels, read_image

__all__ = [
    "SUFFIXES",
    "Arrays",
    "Image",
    "Pixels",
    "find_arrays",
    "image_files",
    "is_image_folder",
    "read_image",
    "read_images",
    "same_channels",
    "split_name",
]
