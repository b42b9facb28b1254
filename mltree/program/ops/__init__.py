"""Operations, one file each: records, work, listing, place in a launch, reference formula.

A module here defines a :class:`~mltree.program.ops.operation.Stage` of a program, or a
:class:`~mltree.program.ops.operation.Run` of a SITES stage, and is known by lying here.
"""

from importlib import import_module
from pkgutil import iter_modules

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")
