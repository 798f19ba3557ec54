"""Fixtures for every test: golden files, and GPU tests that say why they were skipped."""

from __future__ import annotations

import ctypes
import difflib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from hypothesis import settings

TESTS = Path(__file__).parent
GOLDEN = TESTS / "golden"

# A compile takes as long as the machine is busy: the test's own timeout bounds it, not Hypothesis's deadline.
settings.register_profile("tidegate", deadline=None, print_blob=True)
settings.load_profile("tidegate")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write tests/golden/* from what the tests produce now"
    )


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test under tests/gpu, or one that takes the ``gpu`` fixture, is a GPU test without saying so again."""
    for item in items:
        if "gpu" in getattr(item, "fixturenames", ()) or (TESTS / "gpu") in item.path.parents:
            item.add_marker("gpu")


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") is not None and isinstance(found := find_gpu(), str):
        pytest.skip(found)


@dataclass(frozen=True)
class Gpu:
    """The first CUDA device."""

    name: str
    capability: tuple[int, int]

    @property
    def arch(self) -> str:
        """As the compiler names it, with the instructions of this architecture alone where it has any: ``sm_90a``."""
        major, minor = self.capability
        return f"sm_{major}{minor}{'a' if major >= 9 else ''}"


@cache
def find_gpu() -> Gpu | str:
    """The first CUDA device, or the reason why there is none.

    Asks the driver itself and makes no context, so that a test process which only skips costs nothing.
    """
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "no NVIDIA driver: libcuda.so.1 is not on this machine"
    if status := driver.cuInit(0):
        return f"the NVIDIA driver finds no usable GPU: cuInit returned {status}"
    count = ctypes.c_int()
    if status := driver.cuDeviceGetCount(ctypes.byref(count)):
        return f"cuDeviceGetCount returned {status}"
    if count.value == 0:
        return "no CUDA device is visible"
    device, name = ctypes.c_int(), ctypes.create_string_buffer(256)
    major, minor = ctypes.c_int(), ctypes.c_int()
    for status in (
        driver.cuDeviceGet(ctypes.byref(device), 0),
        driver.cuDeviceGetName(name, len(name), device),
        driver.cuDeviceGetAttribute(ctypes.byref(major), 75, device),  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
        driver.cuDeviceGetAttribute(ctypes.byref(minor), 76, device),  # ..._MINOR
    ):
        if status:
            return f"the NVIDIA driver does not describe device 0: status {status}"
    return Gpu(name.value.decode(), (major.value, minor.value))


@pytest.fixture(scope="session")
def gpu() -> Gpu:
    """The first CUDA device; the test is skipped, with the reason, where there is none."""
    if isinstance(found := find_gpu(), str):
        pytest.skip(found)
    return found


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """``golden("name.txt", text)``: text must be what tests/golden/name.txt says.

    ``pytest --update-golden`` writes the file instead. Read the change before you commit it.
    """

    def compare(name: str, text: str) -> None:
        path = (GOLDEN / name).resolve()
        if not path.is_relative_to(GOLDEN.resolve()):
            raise ValueError(f"golden file {name!r} lies outside tests/golden")
        # Git and editors want the last line ended, so that end is not part of what is compared.
        text = text.rstrip("\n") + "\n"
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8", newline="\n")
            return
        if not path.exists():
            pytest.fail(
                f"tests/golden/{name} does not exist; pytest --update-golden writes it:\n\n{text}", pytrace=False
            )
        expected = path.read_text(encoding="utf-8")
        if text == expected:
            return
        diff = difflib.unified_diff(
            expected.splitlines(), text.splitlines(), f"tests/golden/{name}", "what the test produced", lineterm="", n=4
        )
        pytest.fail(
            "\n".join([*diff, "", "If this change is meant: pytest --update-golden, then read the diff."]),
            pytrace=False,
        )

    return compare
