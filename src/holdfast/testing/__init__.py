"""Ships with Holdfast: stores that fail, clocks that stop, and the contract that every store must keep."""
