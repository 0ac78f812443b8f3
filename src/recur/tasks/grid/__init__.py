"""A class for every image by a network in two dimensions: a folder of folders, or an .npz."""
