# Bits of 64-bit words.

from libc.stdint cimport uint64_t

cdef extern from *:
    """
    #if defined(__GNUC__) || defined(__clang__)
    #define kvb_highest_bit(x) (63 - __builtin_clzll(x))
    #else
    static inline int kvb_highest_bit(unsigned long long x) { int n = 0; while (x >>= 1) n++; return n; }
    #endif
    """
    int highest_bit "kvb_highest_bit"(uint64_t x) noexcept nogil
