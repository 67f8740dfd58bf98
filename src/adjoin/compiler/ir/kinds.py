"""The kinds of values in a graph."""

FLOAT = "float"  # a number of the kernel's format
BOOL = "bool"  # a condition
INT = "int"  # a 32-bit index or counter
ARRAY = "array"  # one version of a scratch array
INDICES = "indices"  # one version of a scratch array of integers, which all lanes of a vector share
STREAM = "stream"  # a sequence with one element a step
TABLE = "table"  # an input that is read at computed indices
TUPLE = "tuple"  # the results of a scan or of an implicit solution, taken apart by `get`
