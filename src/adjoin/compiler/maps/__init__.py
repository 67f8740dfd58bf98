"""Maps over meshes and particles: kernels whose lanes are elements, nodes or particles, joined by index tables."""
