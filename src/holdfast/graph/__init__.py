"""Graph data sets: nodes and edges in columnar segments, published and read like everything else."""

__all__: list[str] = []
