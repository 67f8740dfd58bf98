"""Other libraries on our robots, for benchmarks that run them beside ours."""
