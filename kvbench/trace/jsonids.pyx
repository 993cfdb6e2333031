"""Lists of ids as JSON text, turned into numbers without an object for each."""

from libc.stdint cimport int64_t, uint64_t

cdef uint64_t MOST = 0xFFFFFFFFFFFFFFFF


def parse_id_lists(const unsigned char[::1] text, uint64_t[::1] out_values, int64_t[::1] out_lengths) -> int:
    """Parse ``text``, a line for each row: a JSON array of whole numbers from 0 to 2^64 - 1, ``null``, or nothing.

    The numbers of all rows are written to ``out_values`` one after another, their count in each row to
    ``out_lengths``: -2 for ``null``, -1 for nothing. ``text`` ends without a line end and has as many lines as
    ``out_lengths`` has places. Returns -1, or the index of the first line that is something else. Raises
    ValueError if there is not room for all numbers.
    """
    cdef Py_ssize_t at = 0
    cdef Py_ssize_t end = text.shape[0]
    cdef Py_ssize_t row
    cdef Py_ssize_t used = 0
    cdef Py_ssize_t began
    cdef uint64_t value
    cdef unsigned char digit
    for row in range(out_lengths.shape[0]):
        if row > 0:
            if at >= end or text[at] != 10:
                return row - 1
            at += 1
        if at >= end or text[at] == 10:
            out_lengths[row] = -1
            continue
        if text[at] == 110:
            if end - at < 4 or text[at + 1] != 117 or text[at + 2] != 108 or text[at + 3] != 108:
                return row
            at += 4
            out_lengths[row] = -2
            continue
        if text[at] != 91:
            return row
        at += 1
        began = used
        while at < end and text[at] == 32:
            at += 1
        if at < end and text[at] == 93:
            at += 1
            out_lengths[row] = 0
            continue
        while True:
            while at < end and text[at] == 32:
                at += 1
            if at >= end:
                return row
            digit = text[at] - 48
            if digit > 9:
                return row
            value = digit
            at += 1
            while at < end:
                digit = text[at] - 48
                if digit > 9:
                    break
                # JSON knows no leading zeros, and what passes the largest number is none that fits.
                if value == 0 or value > MOST // 10 or value * 10 > MOST - digit:
                    return row
                value = value * 10 + digit
                at += 1
            if used >= out_values.shape[0]:
                raise ValueError(f"out_values has room for {out_values.shape[0]} numbers, and there are more")
            out_values[used] = value
            used += 1
            while at < end and text[at] == 32:
                at += 1
            if at >= end:
                return row
            if text[at] == 44:
                at += 1
            elif text[at] == 93:
                at += 1
                break
            else:
                return row
        out_lengths[row] = used - began
    return -1 if at == end else out_lengths.shape[0] - 1
