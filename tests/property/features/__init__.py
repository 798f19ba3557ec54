"""Random programs per language feature, each a small kernel around that feature, and what must hold of them."""

from features import control, elementwise, integers, loops, memory, tiles
from features.program import FEATURES, FeatureProgram, Generator

__all__ = ["FEATURES", "FeatureProgram", "Generator", "control", "elementwise", "integers", "loops", "memory", "tiles"]
