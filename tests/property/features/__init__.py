"""Random programs per language feature, each a small kernel around that feature, and what must hold of them."""

from features import elementwise, integers, loops, tiles
from features.program import FEATURES, FeatureProgram, Generator

__all__ = ["FEATURES", "FeatureProgram", "Generator", "elementwise", "integers", "loops", "tiles"]
