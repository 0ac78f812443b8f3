"""Tokenizers in C, as text: see c_text.py, which fills them in."""

from __future__ import annotations

TABLE = """\
/* The number of a token, or 0, which is <unk>. */
static int32_t @_find_%(v)s(const char *bytes, int32_t length) {
    int32_t low = 0, high = %(n)d;
    while (low < high) {
        const int32_t middle = (low + high) / 2, id = @_%(v)s_sorted[middle];
        const int32_t own = @_%(v)s_at[id + 1] - @_%(v)s_at[id], common = own < length ? own : length;
        int order = common ? memcmp(@_%(v)s_bytes + @_%(v)s_at[id], bytes, (size_t)common) : 0;
        if (order == 0) order = own < length ? -1 : own > length;
        if (order == 0) return id;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return 0;
}
"""

TOKEN_TEXT = """\
/* The bytes of a token, which are not ended by a 0, and how many they are. */
@@_API const char *@_token(int32_t id, int32_t *length) {
    *length = @_%(v)s_at[id + 1] - @_%(v)s_at[id];
    return (const char *)@_%(v)s_bytes + @_%(v)s_at[id];
}
"""

ENCODE = """\
/* A text of so many bytes as tokens, at most so many of them: how many there are. */
@@_API int32_t @_encode_%(v)s(const char *text, int32_t length, int32_t *ids, int32_t most) {
    int32_t count = 0, at = 0;
    uint32_t c;
%(body)s
    return count;
}
"""

CHARACTERS = """\
    while (at < length && count < most) {
        const int32_t bytes = @_character(text, length, at, &c);
        ids[count++] = @_find_%(v)s(text + at, bytes);
        at += bytes;
    }"""

WORDS = """\
    while (at < length && count < most) {
        int32_t bytes = @_character(text, length, at, &c), end = at, id;
%(newline)s        if (@_is_space(c)) {
            at += bytes;
            continue;
        }
        while (end < length) {
            bytes = @_character(text, length, end, &c);
            if (@_is_space(c)) break;
            end += bytes;
        }
        id = %(find)s;
        ids[count++] = %(reserved)s ? 0 : id;
        at = end;
    }"""

NEWLINE = """\
        if (c == 10) {
            ids[count++] = %d;
            at += bytes;
            continue;
        }
"""

LINES = """\
    for (; count < most && at <= length; ++count) {
        int32_t end = at;
        while (end < length && text[end] != '\\n') ++end;
        ids[count] = @_find_%(v)s(text + at, end - at);
        if (ids[count] < 4) ids[count] = 0;
        at = end + 1;
    }
    (void)c;"""

FIND_LOWER = """\
/* The number of a token in lower case. */
static int32_t @_find_lower_%(v)s(const char *text, int32_t length) {
    char own[%(size)d];
    int32_t at = 0, made = 0;
    uint32_t c, before = 0;
    while (at < length) {
        const int32_t bytes = @_character(text, length, at, &c);
        const int32_t last = at && at + bytes == length;
        const uint32_t small = c == 0x3A3 && last && @_lower(before) != before ? 0x3C2 : @_lower(c);
        if (made + 8 > %(size)d) return 0;
        if (c == 0x130) {
            own[made++] = 'i';
            made += @_write_character(0x307, own + made);
        } else {
            made += @_write_character(small, own + made);
        }
        before = c;
        at += bytes;
    }
    return @_find_%(v)s(own, made);
}
"""

MARKED = """\
    while (at < length && count < most) {
        int32_t bytes = @_character(text, length, at, &c), end = at + bytes, id, joined = c == 0x200D;
        uint32_t flags = @_flags(c);
        if (c == 10) {
            ids[count++] = %(eos)d;
            at = end;
            continue;
        }
        if (@_is_space(c)) {
            at = end;
            continue;
        }
        if (c == '<' && end + 4 <= length && text[end + 3] == '>' &&
            (!memcmp(text + end, "unk", 3) || !memcmp(text + end, "pad", 3) || !memcmp(text + end, "bos", 3) ||
             !memcmp(text + end, "eos", 3))) {
            id = @_find_%(v)s(text + at, 5);
            ids[count++] = id == 1 || id == 2 ? 0 : id;
            at = end + 4;
            continue;
        }
        if (flags & %(mark)du) { /* marks alone */
            while (end < length) {
                bytes = @_character(text, length, end, &c);
                if (!(@_flags(c) & %(mark)du)) break;
                end += bytes;
            }
        } else if (flags & %(han)du) {
            end = @_behind_marks(text, length, end, &joined);
        } else if (flags & %(word)du) {
            end = @_behind_marks(text, length, end, &joined);
            while (end < length) {
                int32_t behind;
                bytes = @_character(text, length, end, &c);
                behind = end + bytes;
                if (c == '\\'' || c == 0x2019 || c == '-') { /* one inside, with a letter behind it */
                    if (behind >= length) break;
                    bytes = @_character(text, length, behind, &c);
                    behind += bytes;
                }
                flags = @_flags(c);
                if (!(flags & %(word)du) || flags & %(han)du || flags & %(mark)du) break;
                end = @_behind_marks(text, length, behind, &joined);
            }
        } else { /* a sign with its marks, and others that a joiner holds to it */
            end = @_behind_marks(text, length, end, &joined);
            while (joined && end < length) {
                bytes = @_character(text, length, end, &c);
                if (@_is_space(c) || @_flags(c) & %(letter)du) break;
                end = @_behind_marks(text, length, end + bytes, &joined);
            }
        }
        id = %(find)s;
        ids[count++] = id == 1 || id == 2 ? 0 : id;
        at = end;
    }"""

BEHIND_MARKS = """\
static int32_t @_behind_marks(const char *text, int32_t length, int32_t at, int32_t *joined) {
    uint32_t c;
    *joined = 0;
    while (at < length) {
        const int32_t bytes = @_character(text, length, at, &c);
        if (!(@_flags(c) & %(mark)du)) break;
        *joined = c == 0x200D;
        at += bytes;
    }
    return at;
}
"""

PIECES = """\
    while (at <= length && count < most) { /* line by line, each cut so that its pieces are likeliest */
        int32_t end = at, n, back;
        while (end < length && text[end] != '\\n' && end - at < %(longest)d) ++end;
        n = end - at;
        best[0] = 0.0f;
        for (int32_t k = 1; k <= n; ++k) best[k] = -1e30f;
        for (int32_t k = 0; k < n;) {
            const int32_t one = @_character(text, end, at + k, &c);
            char own[%(size)d];
            int32_t made = 0, j = k, whole = 0;
            while (j < n && made + 4 <= %(size)d) {
                const int32_t bytes = @_character(text, end, at + j, &c);
                int32_t id;
                if (c == ' ') {
                    memcpy(own + made, "\\xE2\\x96\\x81", 3);
                    made += 3;
                } else {
                    memcpy(own + made, text + at + j, (size_t)bytes);
                    made += bytes;
                }
                j += bytes;
                id = @_find_%(v)s(own, made);
                if (id > 3 && @_%(v)s_score[id] < 1e29f) {
                    const float score = best[k] + @_%(v)s_score[id];
                    if (j == k + one) whole = 1;
                    if (score > best[j]) {
                        best[j] = score;
                        from[j] = k;
                        piece[j] = id;
                    }
                }
            }
            if (!whole && best[k] + %(unknown)s > best[k + one]) {
                best[k + one] = best[k] + %(unknown)s;
                from[k + one] = k;
                piece[k + one] = 0;
            }
            k += one;
        }
        back = 0;
        for (int32_t k = n; k > 0; k = from[k]) back += piece[k] ? 1 : k - from[k];
        if (count + back > most) back = most - count;
        {
            int32_t place = count + back;
            for (int32_t k = n; k > 0 && place > count; k = from[k]) {
                if (piece[k])
                    ids[--place] = piece[k];
                else
                    for (int32_t b = k; b-- > from[k] && place > count;)
                        ids[--place] = @_%(v)s_byte[(unsigned char)text[at + b]];
            }
        }
        count += back;
        if (end >= length) break;
        if (text[end] == '\\n') {
            if (count < most) ids[count++] = %(eos)d;
            ++end;
        }
        at = end;
    }"""

DECODE = {
    "char": """\
    int32_t length;
    const char *const bytes = @_token(id, &length);
    (void)before;
    if (length > room) return -1;
    memcpy(to, bytes, (size_t)length);
    return length;""",
    "word": """\
    int32_t length, space;
    const char *const bytes = id == %(eos)d ? "\\n" : @_token(id, &length);
    if (id == %(eos)d) length = 1;
    space = before >= 0 && before != %(eos)d && id != %(eos)d;
    if (length + space > room) return -1;
    if (space) to[0] = ' ';
    memcpy(to + space, bytes, (size_t)length);
    return length + space;""",
    "space": """\
    int32_t length;
    const char *const bytes = @_token(id, &length);
    const int32_t space = before >= 0;
    if (length + space > room) return -1;
    if (space) to[0] = ' ';
    memcpy(to + space, bytes, (size_t)length);
    return length + space;""",
    "subword": """\
    int32_t length, made = 0;
    const char *const bytes = @_token(id, &length);
    (void)before;
    if (id == %(eos)d) {
        if (room < 1) return -1;
        to[0] = '\\n';
        return 1;
    }
    if (length == 6 && bytes[0] == '<' && bytes[1] == '0' && bytes[2] == 'x') {
        int32_t value = 0;
        for (int32_t k = 3; k < 5; ++k) value = value * 16 + (bytes[k] <= '9' ? bytes[k] - '0' : bytes[k] - 'A' + 10);
        if (room < 1) return -1;
        to[0] = (char)(unsigned char)value;
        return 1;
    }
    for (int32_t k = 0; k < length; ++k) {
        const int32_t blank = k + 3 <= length && !memcmp(bytes + k, "\\xE2\\x96\\x81", 3);
        if (made >= room) return -1;
        to[made++] = blank ? ' ' : bytes[k];
        if (blank) k += 2;
    }
    return made;""",
}

DECODED = """\
/* The text of a token behind another one (or -1), into so much room: how many bytes, or -1 if they do not fit. */
@@_API int32_t @_text(int32_t before, int32_t id, char *to, int32_t room) {
%s
}
"""
