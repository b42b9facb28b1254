"""OpenCL devices: finding them, building the worker for them, and running programs on them."""

from mltree.device.vendors import show_installed

show_installed()
