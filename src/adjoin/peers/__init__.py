"""Other libraries on the same robots and tasks, for figures beside theirs."""
