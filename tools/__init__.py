"""The course's own tools: set-up, JupyterLab, the tour, notebook checks, bench."""
