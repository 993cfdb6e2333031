"""The benchmark suite of kvbench, for asv.

    asv machine --yes                            once on a new machine
    asv run -E existing --quick --dry-run        does every benchmark run?
    asv continuous main HEAD                     did this branch change anything?
    asv run ALL && asv publish && asv preview    the history

Compare runs of one machine only. Data comes from fixed seeds; a stream that is here stays as it
is, and new ones are added at the end. ``KVBENCH_BENCHMARK_SCALE=0.01`` shrinks all data, to try
a benchmark out. ``peers.py`` is a command by itself: it measures kvbench against libCacheSim.
"""
