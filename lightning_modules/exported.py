"""Name of the weights in a folder of `precis export`, for code that must not import torch."""

EXPORTED = "precis.safetensors"
