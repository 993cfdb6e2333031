# The seeded random stream of one part of a run: xoshiro256++ (Blackman, Vigna 2019), state
# filled by SplitMix64 as its authors advise.

from libc.stdint cimport uint64_t

from kvbench.hashing cimport mix64, mulhi64


cdef struct Stream:
    uint64_t s[4]


cdef inline void stream_seed(Stream* stream, uint64_t seed) noexcept nogil:
    cdef int i
    for i in range(4):
        seed += 0x9e3779b97f4a7c15ULL
        stream.s[i] = mix64(seed)


cdef inline uint64_t rotate_left(uint64_t x, int k) noexcept nogil:
    return (x << k) | (x >> (64 - k))


cdef inline uint64_t stream_next(Stream* stream) noexcept nogil:
    cdef uint64_t* s = stream.s
    cdef uint64_t drawn = rotate_left(s[0] + s[3], 23) + s[0]
    cdef uint64_t t = s[1] << 17
    s[2] ^= s[0]
    s[3] ^= s[1]
    s[1] ^= s[2]
    s[0] ^= s[3]
    s[2] ^= t
    s[3] = rotate_left(s[3], 45)
    return drawn


cdef inline uint64_t stream_below(Stream* stream, uint64_t bound) noexcept nogil:
    # An even draw from 0 … bound-1: Lemire's multiplication with rejection (2019). The threshold is
    # below the bound, so most draws need not divide for it.
    cdef uint64_t drawn = stream_next(stream)
    cdef uint64_t threshold
    if drawn * bound < bound:
        threshold = (0 - bound) % bound
        while drawn * bound < threshold:
            drawn = stream_next(stream)
    return mulhi64(drawn, bound)


cdef inline double stream_uniform(Stream* stream) noexcept nogil:
    # An even draw from [0, 1), a multiple of 2⁻⁵³.
    return (stream_next(stream) >> 11) * (1.0 / 9007199254740992.0)
