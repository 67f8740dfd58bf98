"""Methods for `optimize`: gradient descent, quasi-Newton, Gauss-Newton and sampling, for many starts at once."""
