# Bits of 64-bit words, and nodes of a tree that counts them.

from libc.stdint cimport int32_t, int64_t, uint64_t


cdef extern from *:
    """
    #if defined(__POPCNT__) || defined(__aarch64__)
    #define kvb_popcount64(x) __builtin_popcountll(x)
    #else
    // Inline, where the compiler would call a function of its own for want of an instruction.
    static inline int kvb_popcount64(unsigned long long x) {
        x = x - ((x >> 1) & 0x5555555555555555ULL);
        x = (x & 0x3333333333333333ULL) + ((x >> 2) & 0x3333333333333333ULL);
        return (int)((((x + (x >> 4)) & 0x0f0f0f0f0f0f0f0fULL) * 0x0101010101010101ULL) >> 56);
    }
    #endif

    // Read from 15 - child on: which of 16 siblings come after the child.
    static const int kvb_later[32] = {0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0,
                                      -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1};

    // Add `change` to the entries after `child` in a node: four vector additions, which compilers do not find.
    #if defined(__GNUC__) || defined(__clang__)
    typedef int kvb_four __attribute__((vector_size(16), aligned(4)));
    #define KVB_FOURS 4
    #else
    typedef int kvb_four;
    #define KVB_FOURS 16
    #endif
    static inline void kvb_add_after(int *node, int child, int change) {
        const kvb_four *later = (const kvb_four *)(kvb_later + 15 - child);
        for (int i = 0; i < KVB_FOURS; i++)
            ((kvb_four *)node)[i] += later[i] & change;
    }
    """
    int popcount "kvb_popcount64"(uint64_t bits) noexcept nogil
    void add_after "kvb_add_after"(int32_t* node, int child, int change) noexcept nogil


cdef inline uint64_t below(int64_t position) noexcept nogil:
    # The bits of a word before the one of `position`.
    return (<uint64_t>1 << (position % 64)) - 1


cdef inline uint64_t up_to(int64_t position) noexcept nogil:
    # The bits of a word before and at the one of `position`.
    return <uint64_t>-1 >> (63 - position % 64)


cdef inline uint64_t word_mask(int64_t start, int64_t stop) noexcept nogil:
    # The bits from `start` to the end of its word, or to `stop` where that comes first.
    cdef int64_t end = min(stop, (start // 64 + 1) * 64)
    return (<uint64_t>-1 >> (64 - (end - start))) << (start % 64)
