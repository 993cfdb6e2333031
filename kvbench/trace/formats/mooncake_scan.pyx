"""Reads the usual rows of a Mooncake file into arrays, without an object for each row or id.

It knows one shape only: a line with a JSON object of the four fields of the released files, in any
order, each once, numbers plain. Whatever differs, errors included, is left to a reader of all JSON.
"""

from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcmp

cdef uint64_t MOST = 0xFFFFFFFFFFFFFFFF
cdef uint64_t NS_PER_MS = 1_000_000
cdef uint64_t MAX_WHOLE_MS = 0x7FFFFFFFFFFFFFFF // 1_000_000
cdef uint64_t MAX_FRACTION_NS = 1 << 51  # up to here a float of milliseconds means the nanosecond that it is written as
cdef uint64_t MAX_TOKENS = 0xFFFFFFFF
cdef int TIMESTAMP = 1, INPUT_LENGTH = 2, OUTPUT_LENGTH = 4, HASH_IDS = 8

SMALLEST_ROW = len('{"timestamp":0,"input_length":0}')


cdef struct Cursor:
    const unsigned char* at
    const unsigned char* end


def scan_rows(
    const unsigned char[::1] text,
    int64_t[::1] out_lines,
    int64_t[::1] out_arrivals,
    int64_t[::1] out_tokens,
    int64_t[::1] out_outputs,
    int64_t[::1] out_lengths,
    uint64_t[::1] out_values,
) -> tuple[int, int]:
    """Scan whole lines; returns the number of rows and of ids, or (-1, 0) if anything is unusual.

    Of row r there are written its line (from 0), its arrival in nanoseconds, its input tokens, its output
    tokens (-1: none), its number of ids (-1: none), and to ``out_values`` its ids after those of the rows
    before. There must be room for ``len(text) // SMALLEST_ROW + 1`` rows and ``len(text) // 2 + 1`` ids;
    raises ValueError otherwise.
    """
    cdef Py_ssize_t size = text.shape[0]
    cdef Py_ssize_t most = size // <Py_ssize_t>SMALLEST_ROW + 1
    cdef Py_ssize_t rows = 0
    cdef Py_ssize_t line = 0
    cdef uint64_t ids = 0
    cdef Cursor here
    if out_values.shape[0] < size // 2 + 1 or min(
        out_lines.shape[0], out_arrivals.shape[0], out_tokens.shape[0], out_outputs.shape[0], out_lengths.shape[0]
    ) < most:
        raise ValueError(f"there is not room for what {size} bytes may hold")
    if size == 0:
        return 0, 0
    here.at = &text[0]
    here.end = here.at + size
    while here.at < here.end:
        if not at_line_end(&here):
            out_lines[rows] = line
            if not scan_row(
                &here, &out_arrivals[rows], &out_tokens[rows], &out_outputs[rows], &out_lengths[rows],
                &out_values[0], &ids,
            ) or not at_line_end(&here):
                return -1, 0
            rows += 1
        if here.at < here.end:
            here.at += 1
        line += 1
    return rows, ids


cdef inline bint at_line_end(Cursor* here) noexcept nogil:
    # Passes over spaces and the first half of a CRLF; whether the line ends here.
    while here.at < here.end and (here.at[0] == b" " or here.at[0] == b"\r"):
        here.at += 1
    return here.at >= here.end or here.at[0] == b"\n"


cdef inline bint take(Cursor* here, unsigned char wanted) noexcept nogil:
    # Passes over spaces and `wanted`; whether that stood there.
    while here.at < here.end and here.at[0] == b" ":
        here.at += 1
    if here.at >= here.end or here.at[0] != wanted:
        return False
    here.at += 1
    return True


cdef inline bint number(Cursor* here, uint64_t* out) noexcept nogil:
    # A whole number of 64 bits without sign or leading zeros.
    cdef unsigned char digit
    cdef uint64_t value
    while here.at < here.end and here.at[0] == b" ":
        here.at += 1
    if here.at >= here.end:
        return False
    digit = here.at[0] - 48
    if digit > 9:
        return False
    value = digit
    here.at += 1
    while here.at < here.end:
        digit = here.at[0] - 48
        if digit > 9:
            break
        if value == 0 or value > MOST // 10 or value * 10 > MOST - digit:
            return False
        value = value * 10 + digit
        here.at += 1
    out[0] = value
    return True


cdef inline bint milliseconds(Cursor* here, int64_t* out) noexcept nogil:
    # A time in milliseconds, with at most six digits after the point, as nanoseconds.
    cdef uint64_t value
    cdef uint64_t fraction = 0
    cdef uint64_t unit = NS_PER_MS
    if not number(here, &value) or value > MAX_WHOLE_MS:
        return False
    value *= NS_PER_MS
    if here.at < here.end and here.at[0] == b".":
        here.at += 1
        while here.at < here.end and 48 <= here.at[0] <= 57 and unit > 1:
            unit //= 10
            fraction += (here.at[0] - 48) * unit
            here.at += 1
        value += fraction
        if unit == NS_PER_MS or value > MAX_FRACTION_NS:
            return False
    out[0] = <int64_t>value
    return True


cdef inline bint tokens(Cursor* here, int64_t* out) noexcept nogil:
    cdef uint64_t value
    if not number(here, &value) or value > MAX_TOKENS:
        return False
    out[0] = <int64_t>value
    return True


cdef inline bint absent(Cursor* here) noexcept nogil:
    # Passes over `null`; whether it stood there.
    while here.at < here.end and here.at[0] == b" ":
        here.at += 1
    if here.end - here.at < 4 or memcmp(here.at, b"null", 4) != 0:
        return False
    here.at += 4
    return True


cdef inline bint id_list(Cursor* here, uint64_t* values, uint64_t* used, int64_t* length) noexcept nogil:
    cdef uint64_t began = used[0]
    if not take(here, b"["):
        return False
    if take(here, b"]"):
        length[0] = 0
        return True
    while True:
        # Each takes two bytes of the text at least, so there is room.
        if not number(here, &values[used[0]]):
            return False
        used[0] += 1
        if here.at < here.end and here.at[0] == b",":
            here.at += 1
            continue
        if take(here, b"]"):
            break
        if not take(here, b","):
            return False
    length[0] = <int64_t>(used[0] - began)
    return True


cdef inline int field(Cursor* here) noexcept nogil:
    # Passes over the name of a field and its colon; which it was, 0 if none of the four.
    cdef Py_ssize_t left
    cdef int which = 0
    if not take(here, b'"'):
        return 0
    left = here.end - here.at
    if left > 10 and memcmp(here.at, b'timestamp"', 10) == 0:
        which = TIMESTAMP
        here.at += 10
    elif left > 13 and memcmp(here.at, b'input_length"', 13) == 0:
        which = INPUT_LENGTH
        here.at += 13
    elif left > 14 and memcmp(here.at, b'output_length"', 14) == 0:
        which = OUTPUT_LENGTH
        here.at += 14
    elif left > 9 and memcmp(here.at, b'hash_ids"', 9) == 0:
        which = HASH_IDS
        here.at += 9
    return which if which and take(here, b":") else 0


cdef inline bint scan_row(
    Cursor* here, int64_t* arrival, int64_t* input_tokens, int64_t* output_tokens, int64_t* length,
    uint64_t* values, uint64_t* used,
) noexcept nogil:
    cdef int seen = 0
    cdef int which
    cdef bint good
    output_tokens[0] = -1
    length[0] = -1
    if not take(here, b"{"):
        return False
    while True:
        which = field(here)
        if which == 0 or seen & which:
            return False
        seen |= which
        if which == TIMESTAMP:
            good = milliseconds(here, arrival)
        elif which == INPUT_LENGTH:
            good = tokens(here, input_tokens)
        elif which == OUTPUT_LENGTH:
            good = absent(here) or tokens(here, output_tokens)
        else:
            good = absent(here) or id_list(here, values, used, length)
        if not good:
            return False
        if take(here, b"}"):
            break
        if not take(here, b","):
            return False
    return seen & TIMESTAMP and seen & INPUT_LENGTH
