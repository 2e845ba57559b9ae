"""How curved the loss is: eigenvalues, trace and spectrum of its Hessian, in the parameters or the pixels."""

from glasshouse.measures.curvature.pixels import input_curvature
from glasshouse.measures.curvature.spectrum import Density, Eigenvalues, density, top_eigenvalues, trace

__all__ = ["Density", "Eigenvalues", "density", "input_curvature", "top_eigenvalues", "trace"]
