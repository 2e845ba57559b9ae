"""How curved the loss is: eigenvalues, trace and spectrum of its Hessian, in the parameters or the pixels."""

from glasshouse.measures.curvature.eigenvalues import Eigenvalues, top_eigenvalues
from glasshouse.measures.curvature.pixels import input_curvature
from glasshouse.measures.curvature.spectrum import Density, density, trace

__all__ = ["Density", "Eigenvalues", "density", "input_curvature", "top_eigenvalues", "trace"]
