"""Networks as pairs of pure functions, and adapters from the libraries of the field."""

from .model import Model as Model
