"""More of a given trace: what ``kvbench trace make --like`` fits, makes and compares."""
