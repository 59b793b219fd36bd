"""LKF: latent-kernel masked diffusion, as a plugin to MDLM."""

__version__ = "0.1.0"
