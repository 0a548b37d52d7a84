"""What is known of the weights: Gaussians of several kinds, a mixture, a bag of samples, or a class of your own."""

from .canonical import canonical as canonical
from .factor import FactorGaussian as FactorGaussian
from .gaussian import Gaussian as Gaussian
from .lowrank import LowRankGaussian as LowRankGaussian
from .mixture import GaussianMixture as GaussianMixture
from .protocol import Posterior as Posterior
from .protocol import is_posterior as is_posterior
from .samples import Samples as Samples
