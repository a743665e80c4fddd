"""PTX as data: parsing it, and rewriting it before it is assembled."""
