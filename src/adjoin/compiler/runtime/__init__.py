"""Compiling, caching and launching kernels; the torch operator."""
