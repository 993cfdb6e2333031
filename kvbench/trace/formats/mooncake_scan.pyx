"""Reads the usual rows of a Mooncake file into arrays, without an object for each row or id.

It knows one shape only: a line with a JSON object of the four fields of the released files and, where the
rows are turns of sessions, of three more; in any order, each once, numbers plain, texts without escapes.
Whatever differs, errors included, is left to a reader of all JSON.
"""

from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcmp

from kvbench.digits cimport eight_digits

cdef int SAFE_DIGITS = 19  # all numbers of so many digits are of 64 bits
cdef uint64_t* POWERS = [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000]
cdef uint64_t MOST = 0xFFFFFFFFFFFFFFFF
cdef uint64_t NS_PER_MS = 1_000_000
cdef uint64_t MAX_WHOLE_MS = 0x7FFFFFFFFFFFFFFF // 1_000_000
cdef uint64_t MAX_FRACTION_NS = 1 << 51  # up to here a float of milliseconds means the nanosecond that it is written as
cdef uint64_t MAX_TOKENS = 0xFFFFFFFF

cdef enum:
    TIMESTAMP = 1
    INPUT_LENGTH = 2
    OUTPUT_LENGTH = 4
    HASH_IDS = 8
    DELAY = 16
    SESSION = 32
    REQUEST = 64
    ROW_FIELDS = TIMESTAMP | INPUT_LENGTH | OUTPUT_LENGTH | HASH_IDS
    TURN_FIELDS = ROW_FIELDS | DELAY | SESSION | REQUEST
    ROW_COLUMNS = 5
    ALL_COLUMNS = 10

SMALLEST_ROW = len('{"input_length":0}')


cdef struct Cursor:
    const unsigned char* at
    const unsigned char* end


cdef struct Row:
    int64_t arrival_ns
    int64_t input_tokens
    int64_t output_tokens
    int64_t ids
    int64_t delay_ns
    const unsigned char* session[2]  # where its text begins and ends
    const unsigned char* request[2]


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
    cdef int64_t* columns[ROW_COLUMNS]
    cdef Py_ssize_t rows
    cdef uint64_t ids = 0
    check_room(text.shape[0], min(
        out_lines.shape[0], out_arrivals.shape[0], out_tokens.shape[0], out_outputs.shape[0], out_lengths.shape[0]
    ), out_values.shape[0])
    if text.shape[0] == 0:
        return 0, 0
    columns[0], columns[1], columns[2] = &out_lines[0], &out_arrivals[0], &out_tokens[0]
    columns[3], columns[4] = &out_outputs[0], &out_lengths[0]
    rows = scan(&text[0], text.shape[0], ROW_FIELDS, columns, &out_values[0], &ids)
    return rows, ids if rows >= 0 else 0


def scan_turns(
    const unsigned char[::1] text, int64_t[:, ::1] out, uint64_t[::1] out_values
) -> tuple[int, int]:
    """As :func:`scan_rows`, of rows that may be turns of sessions.

    ``out`` has ten lines: those of :func:`scan_rows` (the arrival is -1 where there is none), the
    delay in nanoseconds (-1: none), and where in ``text`` the session's name begins and ends, and the
    request's (-1: none). Names are bytes without escapes, which may be no UTF-8; numbers are names, too.
    """
    cdef int64_t* columns[ALL_COLUMNS]
    cdef Py_ssize_t rows, column
    cdef uint64_t ids = 0
    if out.shape[0] != ALL_COLUMNS:
        raise ValueError(f"out has {out.shape[0]} columns; it must have {ALL_COLUMNS}")
    check_room(text.shape[0], out.shape[1], out_values.shape[0])
    if text.shape[0] == 0:
        return 0, 0
    for column in range(ALL_COLUMNS):
        columns[column] = &out[column, 0]
    rows = scan(&text[0], text.shape[0], TURN_FIELDS, columns, &out_values[0], &ids)
    return rows, ids if rows >= 0 else 0


cdef int check_room(Py_ssize_t size, Py_ssize_t rows, Py_ssize_t ids) except -1:
    if ids < size // 2 + 1 or rows < size // <Py_ssize_t>SMALLEST_ROW + 1:
        raise ValueError(f"there is not room for what {size} bytes may hold")
    return 0


cdef Py_ssize_t scan(
    const unsigned char* text, Py_ssize_t size, int known, int64_t** columns, uint64_t* values, uint64_t* ids
) noexcept nogil:
    # The number of rows, -1 if one has other fields than `known`, or lacks one.
    cdef Py_ssize_t rows = 0
    cdef Py_ssize_t line = 0
    cdef int seen
    cdef Row row
    cdef Cursor here
    here.at = text
    here.end = text + size
    while here.at < here.end:
        if not at_line_end(&here):
            seen = scan_row(&here, &row, values, ids)
            if not seen & INPUT_LENGTH or seen & ~known or not at_line_end(&here):
                return -1
            columns[0][rows] = line
            columns[1][rows] = row.arrival_ns
            columns[2][rows] = row.input_tokens
            columns[3][rows] = row.output_tokens
            columns[4][rows] = row.ids
            if known == TURN_FIELDS:
                columns[5][rows] = row.delay_ns
                place(text, row.session, &columns[6][rows], &columns[7][rows])
                place(text, row.request, &columns[8][rows], &columns[9][rows])
            elif not seen & TIMESTAMP:
                return -1
            rows += 1
        if here.at < here.end:
            here.at += 1
        line += 1
    return rows


cdef inline void place(
    const unsigned char* text, const unsigned char** name, int64_t* begin, int64_t* end
) noexcept nogil:
    begin[0] = -1 if name[0] == NULL else name[0] - text
    end[0] = -1 if name[0] == NULL else name[1] - text


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
    cdef const unsigned char* began
    cdef uint64_t value
    while here.at < here.end and here.at[0] == b" ":
        here.at += 1
    if here.end - here.at < 8 or 48 <= here.at[7] <= 57:
        return long_number(here, out)
    # The processor guesses where a short number ends, which is faster than finding out.
    began = here.at
    value = 0
    while 48 <= here.at[0] <= 57:
        value = value * 10 + (here.at[0] - 48)
        here.at += 1
    out[0] = value
    return here.at > began and (began[0] != b"0" or here.at - began == 1)


cdef bint long_number(Cursor* here, uint64_t* out) noexcept nogil:
    cdef const unsigned char* began = here.at
    cdef uint64_t value = 0
    cdef uint64_t more
    cdef int digits = 8
    cdef int wanted = 8
    while digits == wanted and here.at < here.end:
        if here.end - here.at >= 8:
            digits = eight_digits(here.at, &more)
        else:
            wanted = 1
            digits = 48 <= here.at[0] <= 57
            more = here.at[0] - 48 if digits else 0
        if here.at + digits - began > SAFE_DIGITS and (
            here.at + digits - began > SAFE_DIGITS + 1 or value > (MOST - more) // POWERS[digits]
        ):
            return False
        value = value * POWERS[digits] + more
        here.at += digits
    out[0] = value
    return here.at > began and (began[0] != b"0" or here.at - began == 1)


cdef bint milliseconds(Cursor* here, int64_t* out) noexcept nogil:
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


cdef bint tokens(Cursor* here, int64_t* out) noexcept nogil:
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


cdef bint id_list(Cursor* place, uint64_t* values, uint64_t* used, int64_t* length) noexcept nogil:
    cdef Cursor here = place[0]  # a copy stays in registers
    cdef uint64_t* begin = values + used[0]
    cdef uint64_t* next = begin
    if not take(&here, b"["):
        return False
    if not take(&here, b"]"):
        while True:
            # Each takes two bytes of the text at least, so there is room.
            if not number(&here, next):
                return False
            next += 1
            if here.at < here.end and here.at[0] == b",":
                here.at += 1
            elif take(&here, b"]"):
                break
            elif not take(&here, b","):
                return False
    place.at = here.at
    length[0] = next - begin
    used[0] += length[0]
    return True


cdef bint text_name(Cursor* here, const unsigned char** name) noexcept nogil:
    # A text without escapes, or a whole number; where it begins and ends, without its quotes.
    cdef uint64_t value
    while here.at < here.end and here.at[0] == b" ":
        here.at += 1
    name[0] = here.at
    if here.at < here.end and 48 <= here.at[0] <= 57:
        if not long_number(here, &value):
            return False
        name[1] = here.at
        return here.at < here.end and here.at[0] != b"." and here.at[0] != b"e" and here.at[0] != b"E"
    if not take(here, b'"'):
        return False
    name[0] = here.at
    while here.at < here.end and here.at[0] >= 32 and here.at[0] != b'"' and here.at[0] != b"\\":
        here.at += 1
    name[1] = here.at
    return take(here, b'"')


cdef inline bint named(Cursor* here, const char* name, Py_ssize_t size) noexcept nogil:
    # Passes over `name` and the quote behind it; whether they stood there.
    if here.end - here.at <= size or memcmp(here.at, name, size) != 0 or here.at[size] != b'"':
        return False
    here.at += size + 1
    return True


cdef inline int field(Cursor* here) noexcept nogil:
    # Passes over the name of a field and its colon; which it was, 0 if none that is known.
    cdef int which = 0
    if not take(here, b'"'):
        return 0
    if named(here, b"timestamp", 9) or named(here, b"created_time", 12):
        which = TIMESTAMP
    elif named(here, b"input_length", 12) or named(here, b"input_tokens", 12):
        which = INPUT_LENGTH
    elif named(here, b"output_length", 13) or named(here, b"output_tokens", 13):
        which = OUTPUT_LENGTH
    elif named(here, b"hash_ids", 8):
        which = HASH_IDS
    elif named(here, b"session_id", 10):
        which = SESSION
    elif named(here, b"delay", 5) or named(here, b"delay_ms", 8):
        which = DELAY
    elif named(here, b"request_id", 10):
        which = REQUEST
    return which if which and take(here, b":") else 0


cdef inline int scan_row(Cursor* here, Row* row, uint64_t* values, uint64_t* used) noexcept nogil:
    # Which fields the row has, 0 if it is unusual.
    cdef int seen = 0
    cdef int which
    cdef bint good
    row.arrival_ns = row.output_tokens = row.ids = row.delay_ns = -1
    row.session[0] = row.request[0] = NULL
    if not take(here, b"{"):
        return 0
    while True:
        which = field(here)
        if which == 0 or seen & which:
            return 0
        seen |= which
        if which == TIMESTAMP:
            good = milliseconds(here, &row.arrival_ns)
        elif which == INPUT_LENGTH:
            good = tokens(here, &row.input_tokens)
        elif which == OUTPUT_LENGTH:
            good = absent(here) or tokens(here, &row.output_tokens)
        elif which == HASH_IDS:
            good = absent(here) or id_list(here, values, used, &row.ids)
        elif which == DELAY:
            good = absent(here) or milliseconds(here, &row.delay_ns)
        elif which == SESSION:
            good = absent(here) or text_name(here, row.session)
        else:
            good = absent(here) or text_name(here, row.request)
        if not good:
            return 0
        if take(here, b"}"):
            return seen
        if not take(here, b","):
            return 0
