"""The parts of the page of results: what `results.py` writes into `docs/results.md`."""
