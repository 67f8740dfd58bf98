"""Work on one environment divided among several workers, such as the warps of a block of a GPU."""
