# Integer hashing that the compiled modules share; inlined into each of them.

from libc.stdint cimport int32_t, uint32_t, uint64_t


cdef extern from *:
    """
    #if defined(__SIZEOF_INT128__)
    static inline unsigned long long kvb_mulhi64(unsigned long long a, unsigned long long b) {
        return (unsigned long long)(((unsigned __int128)a * b) >> 64);
    }
    #else
    static inline unsigned long long kvb_mulhi64(unsigned long long a, unsigned long long b) {
        unsigned long long a0 = a & 0xffffffffULL, a1 = a >> 32, b0 = b & 0xffffffffULL, b1 = b >> 32;
        unsigned long long m = a1 * b0 + ((a0 * b0) >> 32), n = a0 * b1 + (m & 0xffffffffULL);
        return a1 * b1 + (m >> 32) + (n >> 32);
    }
    #endif
    """
    uint64_t mulhi64 "kvb_mulhi64"(uint64_t a, uint64_t b) noexcept nogil


cdef inline uint64_t mix64(uint64_t x) noexcept nogil:
    # The finaliser of SplitMix64 (Steele, Lea, Flood 2014): a bijection of 64-bit words, so
    # different keys never merge.
    x ^= x >> 30
    x *= 0xbf58476d1ce4e5b9ULL
    x ^= x >> 27
    x *= 0x94d049bb133111ebULL
    x ^= x >> 31
    return x


cdef inline uint64_t scale64(uint64_t hashed, uint64_t size) noexcept nogil:
    # hashed / 2^64 * size: an even map of hashes onto 0 … size-1 that needs no power of two.
    return mulhi64(hashed, size)
