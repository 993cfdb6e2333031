# Checks that exist only in a debug build (KVBENCH_DEBUG=1): `if debug_build: …` compiles away
# in a release build.

cdef extern from *:
    """
    #ifdef KVBENCH_DEBUG
    #define KVB_DEBUG_BUILD 1
    #else
    #define KVB_DEBUG_BUILD 0
    #endif
    """
    bint debug_build "KVB_DEBUG_BUILD"
