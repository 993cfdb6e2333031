# Software prefetch, where a loop knows the addresses it will need next.

cdef extern from *:
    """
    #if defined(__GNUC__) || defined(__clang__)
    #define kvb_prefetch(address) __builtin_prefetch((address), 0, 3)
    #define kvb_likely(x) __builtin_expect(!!(x), 1)
    #else
    #define kvb_prefetch(address) ((void)(address))
    #define kvb_likely(x) (x)
    #endif
    """
    void prefetch "kvb_prefetch"(const void* address) noexcept nogil
    bint likely "kvb_likely"(bint condition) noexcept nogil
