"""What is known of the weights: a mean-field Gaussian, a low-rank one, a bag of samples, or a class of your own."""

from .gaussian import Gaussian as Gaussian
from .lowrank import LowRankGaussian as LowRankGaussian
from .protocol import Posterior as Posterior
from .protocol import is_posterior as is_posterior
from .samples import Samples as Samples
