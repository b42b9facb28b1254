"""OpenCL devices: finding them, building the worker for them, and running programs on them."""

from mltree.device.surroundings import prepare

prepare()
