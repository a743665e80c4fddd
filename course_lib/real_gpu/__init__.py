"""The real GPU: load, launch and time with CuPy, behind a helper process and a lock."""
