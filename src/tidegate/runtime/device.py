"""The GPU of this machine: a cheap question, with an answer everywhere."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cache

from tidegate.runtime.driver import library

# CUdevice_attribute
_ATTRIBUTES = {
    "threads": 1,  # MAX_THREADS_PER_BLOCK
    "registers": 12,  # MAX_REGISTERS_PER_BLOCK
    "multiprocessors": 16,  # MULTIPROCESSOR_COUNT
    "major": 75,  # COMPUTE_CAPABILITY_MAJOR
    "minor": 76,  # COMPUTE_CAPABILITY_MINOR
    "shared_per_sm": 81,  # MAX_SHARED_MEMORY_PER_MULTIPROCESSOR
    "shared": 97,  # MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
}


@dataclass(frozen=True)
class Device:
    """A CUDA device. Limits are per CTA: ``shared`` in bytes (after opting in), ``registers`` and ``threads``;
    ``shared_per_sm`` in bytes per multiprocessor."""

    index: int
    name: str
    capability: tuple[int, int]
    multiprocessors: int
    shared: int
    shared_per_sm: int
    registers: int
    threads: int

    @property
    def arch(self) -> str:
        """As the compiler names it, with the instructions of this architecture alone where it has any: sm_90a."""
        major, minor = self.capability
        return f"sm_{major}{minor}{'a' if major >= 9 else ''}"

    def runs(self, arch: str) -> bool:
        """Whether machine code for ``arch`` runs here: for sm_XYa on XY alone, else on X.Y and later minor versions."""
        major, minor = self.capability
        digits = arch.removeprefix("sm_").rstrip("af")
        code = (int(digits[:-1]), int(digits[-1]))
        return code == (major, minor) if arch.endswith("a") else code[0] == major and code[1] <= minor


@cache
def available(index: int = 0) -> Device | None:
    """The device, or None where there is no driver or no such device. Never raises; makes no context."""
    driver = library()
    return _describe(driver, index) if driver else None


def _describe(driver: ctypes.CDLL, index: int) -> Device | None:
    count, device = ctypes.c_int(), ctypes.c_int()
    name = ctypes.create_string_buffer(256)
    if driver.cuDeviceGetCount(ctypes.byref(count)) or index >= count.value:
        return None
    if driver.cuDeviceGet(ctypes.byref(device), index) or driver.cuDeviceGetName(name, len(name), device):
        return None
    values = {}
    for attribute, number in _ATTRIBUTES.items():
        value = ctypes.c_int()
        if driver.cuDeviceGetAttribute(ctypes.byref(value), number, device):
            return None
        values[attribute] = value.value
    capability = (values.pop("major"), values.pop("minor"))
    return Device(index, name.value.decode(errors="replace"), capability, **values)
