"""Baselines in the same house: AR, MDLM, SEDD and DUO on the built-in host.

Each is the host's ``Diffusion`` with what differs overridden, over mathematics in files of their
own. The group ``baseline`` of the configuration chooses one.
"""
