from adjoin.progress import Progress  # noqa: F401
