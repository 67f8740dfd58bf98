"""Contact: shapes and which of them can touch, where they do, constraint rows, and solvers."""
