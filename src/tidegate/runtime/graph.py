"""Launches that repeat: the driver starts a graph of one kernel in half the time that it takes to launch the kernel.

Launches on the default stream go this way once they have been made a few times with the same arguments. The stream
orders a graph like any other launch. Other streams may be captured, or have a priority, which graphs do not take from
them. Some tools show graphs without the names of their kernels: where one looks on, no graphs are made.
"""

from __future__ import annotations

import ctypes
import os
import threading
from ctypes import byref, c_size_t, c_uint, c_uint64, c_void_p
from typing import Any

from tidegate.runtime import driver

FIRST = 16
"""The launch before which a graph is made: that takes as long as some ten of them."""

MOST_GRAPHS = 32
"""Graphs per compiled kernel: each takes about 100 KiB of the device's memory."""

TOOLS = (
    "CUDA_INJECTION64_PATH",
    "CUDA_LAUNCH_BLOCKING",
    "NSYS_PROFILING_SESSION_ID",
    "NV_NSIGHT_INJECTION_PORT_BASE",
    "NV_SANITIZER_INJECTION_PORT_BASE",
)
"""Environment variables by which Nsight Systems, Nsight Compute, compute-sanitizer and debugging are known."""


class _Node(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS_v2."""

    _fields_ = (
        ("function", c_void_p),
        ("grid", c_uint * 3),
        ("block", c_uint * 3),
        ("smem", c_uint),
        ("parameters", c_void_p),
        ("extra", c_void_p),
        ("kernel", c_void_p),
        ("context", c_void_p),
    )


class Graph:
    """A launch of ``function`` as a graph, which has copied its arguments."""

    def __init__(self, function: driver.Function, graph: c_void_p) -> None:
        self._graph, self._start = graph, driver.loaded().cuGraphLaunch
        self._context, self._current = driver.primary_context(function.index).value, c_void_p()
        self._ask, self._answer = driver.quick("cuCtxGetCurrent"), byref(self._current)
        self._lock = threading.Lock()

    def launch(self) -> bool:
        """Starts it on the default stream. False if it has not been started: another thread is at it, another context
        is current, or none is (where the driver would crash), or something is wrong. A launch will do, or tell what."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            if self._ask(self._answer) or self._current.value != self._context:
                return False
            return not self._start(self._graph, None)
        finally:
            self._lock.release()


class Graphs:
    """Makes the graphs of a compiled kernel, as many as it may have. Safe to use from several threads."""

    def __init__(self) -> None:
        self._left = MOST_GRAPHS
        self._lock = threading.Lock()

    def make(self, function: driver.Function, grid: int, arguments: Any) -> Graph | None:
        """``arguments``: a reference as :class:`driver.Parameters` has it. None where there is to be no graph, or the
        driver makes none: it may be too old, or lack memory."""
        with self._lock:
            if not self._left or any(name in os.environ for name in TOOLS):
                return None
            self._left -= 1
        found, template, place, graph = driver.loaded(), c_void_p(), c_void_p(), c_void_p()
        ones, threads = (c_uint * 3)(grid, 1, 1), (c_uint * 3)(function.threads, 1, 1)
        node = _Node(function.handle.value, ones, threads, function.smem, ctypes.addressof(arguments._obj))
        with driver.current(function.index), driver.capture_allowed():
            if not hasattr(found, "cuGraphAddKernelNode_v2") or found.cuGraphCreate(byref(template), 0):
                return None
            failed = found.cuGraphAddKernelNode_v2(byref(place), template, None, c_size_t(0), byref(node))
            failed = failed or found.cuGraphInstantiateWithFlags(byref(graph), template, c_uint64(0))
            found.cuGraphDestroy(template)
        return None if failed else Graph(function, graph)
