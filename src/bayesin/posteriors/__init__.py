"""What is known of the weights: a mean-field Gaussian, or a bag of samples."""

from .gaussian import Gaussian as Gaussian
from .gaussian import standard_normal as standard_normal
from .lowrank import LowRankGaussian as LowRankGaussian
from .samples import Samples as Samples
