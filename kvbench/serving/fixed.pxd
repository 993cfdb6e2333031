# Moments and amounts of work in fixed point of 128 bits: the same on every machine, and finer than
# whole nanoseconds, so that the roundings of a long run do not add up to one.

from libc.stdint cimport int64_t, uint64_t


cdef extern from *:
    """
    #include <stdint.h>

    typedef unsigned __int128 kvb_u128;

    #define KVB_FAR ((kvb_u128)INT64_MAX << 64)

    static inline kvb_u128 kvb_moment(int64_t time_ns) { return (kvb_u128)(uint64_t)time_ns << 64; }

    static inline kvb_u128 kvb_later(kvb_u128 moment, kvb_u128 duration)
    {
        return moment >= KVB_FAR || duration >= KVB_FAR - moment ? KVB_FAR : moment + duration;
    }

    static inline int64_t kvb_round_up(kvb_u128 moment)
    {
        return (int64_t)(moment >> 64) + ((uint64_t)moment != 0);
    }

    /* All roundings are to the later side, so what should happen at a whole nanosecond may be found to
       happen a little after it; up to SLACK later counts as at it. That is 2^-44 ns: more than a million
       roundings in a row add up to (at links of 1 MB/s or more), and less than any fraction of a nanosecond
       that a number of bytes can take at 17 TB/s or less, so it makes nothing of that kind early. */
    #define KVB_SLACK ((kvb_u128)1 << 20)

    static inline int64_t kvb_due(kvb_u128 moment)
    {
        return moment >= KVB_FAR ? INT64_MAX : moment <= KVB_SLACK ? 0 : kvb_round_up(moment - KVB_SLACK);
    }

    #define KVB_MOST_BYTES ((int64_t)1 << 56)

    static inline kvb_u128 kvb_amount(int64_t bytes) { return (kvb_u128)(uint64_t)bytes * 1000000000u << 40; }

    static inline int64_t kvb_whole_bytes(kvb_u128 amount) { return (int64_t)((amount >> 40) / 1000000000u); }

    /* Right for amounts that have wrapped around, too. */
    static inline int kvb_before(kvb_u128 a, kvb_u128 b) { return (__int128)(a - b) < 0; }

    /* value * factor / divisor with 192 bits in between; FAR for what 127 bits do not hold. */
    static inline kvb_u128 kvb_scale(kvb_u128 value, uint64_t factor, uint64_t divisor, int up)
    {
        kvb_u128 low = (kvb_u128)(uint64_t)value * factor;
        kvb_u128 high = (value >> 64) * factor + (low >> 64);
        kvb_u128 whole = high / divisor;
        kvb_u128 rest = ((high - whole * divisor) << 64) | (uint64_t)low;
        kvb_u128 part = rest / divisor;
        if (whole >> 63)
            return KVB_FAR;
        return (whole << 64) + part + (up && part * divisor != rest);
    }

    static inline int64_t kvb_transfer_ns(int64_t bytes, uint64_t bandwidth)
    {
        kvb_u128 work = (kvb_u128)(uint64_t)bytes * 1000000000u;
        return (int64_t)(work / bandwidth) + (work % bandwidth != 0);
    }

    static inline kvb_u128 kvb_amount_in(kvb_u128 duration, uint64_t bandwidth, uint64_t sharers)
    {
        return kvb_scale(duration, bandwidth, sharers << 24, 0);
    }

    static inline kvb_u128 kvb_time_for(kvb_u128 amount, uint64_t bandwidth, uint64_t sharers, int up)
    {
        return kvb_scale(amount, sharers << 24, bandwidth, up);
    }
    """
    ctypedef unsigned long long u128 "kvb_u128"   # Cython knows nothing wider; C does

    # A moment, or a duration, has whole nanoseconds in the upper half and a fraction in the lower.
    const u128 FAR "KVB_FAR"                                      # that of NEVER_NS
    u128 moment "kvb_moment"(int64_t time_ns) noexcept nogil
    u128 later "kvb_later"(u128 moment, u128 duration) noexcept nogil
    int64_t round_up "kvb_round_up"(u128 moment) noexcept nogil   # to whole nanoseconds
    int64_t due "kvb_due"(u128 moment) noexcept nogil             # the same, with some slack

    # An amount of work is bytes · 10⁹ · 2⁴⁰: what a link of one byte a second moves in 2⁻⁴⁰ ns.
    const int64_t MOST_BYTES "KVB_MOST_BYTES"                     # that an amount may stand for
    u128 amount "kvb_amount"(int64_t bytes) noexcept nogil
    int64_t whole_bytes "kvb_whole_bytes"(u128 amount) noexcept nogil
    bint before "kvb_before"(u128 a, u128 b) noexcept nogil       # for amounts that have wrapped around, too
    # What one of so many that share a bandwidth moves in a duration, rounded down; and how long it
    # takes for an amount, rounded up or down.
    u128 amount_in "kvb_amount_in"(u128 duration, uint64_t bandwidth, uint64_t sharers) noexcept nogil
    u128 time_for "kvb_time_for"(u128 amount, uint64_t bandwidth, uint64_t sharers, bint up) noexcept nogil
    int64_t transfer_ns "kvb_transfer_ns"(int64_t bytes, uint64_t bandwidth) noexcept nogil   # rounded up
