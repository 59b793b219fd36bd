"""LKF: latent-kernel masked diffusion, as a plugin to MDLM."""

__all__ = ["__version__"]

__version__ = "0.1.0"
