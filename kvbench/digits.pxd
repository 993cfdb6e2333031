# Decimal digits eight at a time.

from libc.stdint cimport uint64_t


cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>

    /* The leading digits of the eight bytes at `at`: how many there are, and what they say. */
    static inline int kvb_eight_digits(const unsigned char *at, uint64_t *value)
    {
    #if defined(__GNUC__) && defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
        uint64_t word, others;
        int count;
        memcpy(&word, at, 8);
        word ^= 0x3030303030303030ULL; /* digits become 0 to 9, all else more */
        others = ((word + 0x7676767676767676ULL) | word) & 0x8080808080808080ULL;
        count = others ? __builtin_ctzll(others) >> 3 : 8;
        if (count == 0) {
            *value = 0;
            return 0;
        }
        word <<= 64 - 8 * count; /* zeros in front, and what is no digit out */
        word = word * 10 + (word >> 8);
        word = ((word & 0x000000ff000000ffULL) * 0x000f424000000064ULL
                + ((word >> 16) & 0x000000ff000000ffULL) * 0x0000271000000001ULL) >> 32;
        *value = word;
        return count;
    #else
        int count = 0;
        uint64_t said = 0;
        while (count < 8 && at[count] >= '0' && at[count] <= '9')
            said = said * 10 + (uint64_t)(at[count++] - '0');
        *value = said;
        return count;
    #endif
    }
    """
    int eight_digits "kvb_eight_digits"(const unsigned char* at, uint64_t* value) noexcept nogil
