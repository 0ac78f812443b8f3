/* Vocabularies, tokenizers and text features. tokenizers.py and c_header.py fill in the `%` fields. */

/// utf8
/* Decode the UTF-8 character at an offset; return its length in bytes. An invalid byte is one character, U+FFFD. */
static int32_t @_character(const char *text, int32_t length, int32_t at, uint32_t *code) {
    const unsigned char *const t = (const unsigned char *)text + at;
    const int32_t left = length - at;
    int32_t bytes = t[0] < 0x80 ? 1 : t[0] >= 0xF0 ? 4 : t[0] >= 0xE0 ? 3 : t[0] >= 0xC2 ? 2 : 0;
    uint32_t found = bytes == 1 ? t[0] : bytes == 2 ? t[0] & 0x1Fu : bytes == 3 ? t[0] & 0x0Fu : t[0] & 0x07u;
    if (bytes == 0 || bytes > left || t[0] > 0xF4) {
        *code = 0xFFFD;
        return 1;
    }
    for (int32_t k = 1; k < bytes; ++k) {
        if ((t[k] & 0xC0) != 0x80) {
            *code = 0xFFFD;
            return 1;
        }
        found = found << 6 | (t[k] & 0x3Fu);
    }
    *code = found;
    return bytes;
}

static int32_t @_is_space(uint32_t c) {
    return (c >= 9 && c <= 13) || (c >= 28 && c <= 32) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

/// write_character
static int32_t @_write_character(uint32_t c, char *to) {
    unsigned char *const t = (unsigned char *)to;
    if (c < 0x80) {
        t[0] = (unsigned char)c;
        return 1;
    }
    if (c < 0x800) {
        t[0] = (unsigned char)(0xC0 | c >> 6);
        t[1] = (unsigned char)(0x80 | (c & 0x3F));
        return 2;
    }
    if (c < 0x10000) {
        t[0] = (unsigned char)(0xE0 | c >> 12);
        t[1] = (unsigned char)(0x80 | (c >> 6 & 0x3F));
        t[2] = (unsigned char)(0x80 | (c & 0x3F));
        return 3;
    }
    t[0] = (unsigned char)(0xF0 | c >> 18);
    t[1] = (unsigned char)(0x80 | (c >> 12 & 0x3F));
    t[2] = (unsigned char)(0x80 | (c >> 6 & 0x3F));
    t[3] = (unsigned char)(0x80 | (c & 0x3F));
    return 4;
}

/// find_flags
static uint32_t @_flags(uint32_t c) {
    int32_t low = 0, high = %(count)d;
    while (high - low > 1) {
        const int32_t middle = (low + high) / 2;
        if (@_flag_from[middle] <= c)
            low = middle;
        else
            high = middle;
    }
    return @_flag[low];
}

/// lowercase
/* Lower case of a character. The caller handles two special cases: İ has two characters, and final Σ is ς. */
static uint32_t @_lower(uint32_t c) {
    int32_t low = 0, high = %(count)d;
    while (high - low > 1) {
        const int32_t middle = (low + high) / 2;
        if (@_lower_from[middle] <= c)
            low = middle;
        else
            high = middle;
    }
    if (c < @_lower_from[low] || c > @_lower_to[low] || (c - @_lower_from[low]) %% @_lower_step[low]) return c;
    return (uint32_t)((int32_t)c + @_lower_by[low]);
}

/// find_token
/* Return the id of a token by binary search, or 0, which is <unk>. */
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

/// token_text
/* Return the bytes of a token, not null-terminated, and their number; empty for an id outside of the vocabulary. */
@@_API const char *@_token(int32_t id, int32_t *length) {
    *length = 0;
    if (id < 0 || id >= @@_VOCABULARY) return "";
    *length = @_%(v)s_at[id + 1] - @_%(v)s_at[id];
    return (const char *)@_%(v)s_bytes + @_%(v)s_at[id];
}

/// encode_text
/* Encode a text of `length` bytes as at most `most` token ids; return their number. */
@@_API int32_t @_encode_%(v)s(const char *text, int32_t length, int32_t *ids, int32_t most) {
    int32_t count = 0, at = 0;
    uint32_t c;
%(body)s    return count;
}

/// encode_characters
    while (at < length && count < most) {
        const int32_t bytes = @_character(text, length, at, &c);
        ids[count++] = @_find_%(v)s(text + at, bytes);
        at += bytes;
    }

/// encode_words
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
    }

/// encode_newline
        if (c == 10) {
            ids[count++] = %(eos)d;
            at += bytes;
            continue;
        }

/// encode_lines
    for (; count < most && at <= length; ++count) {
        int32_t end = at;
        while (end < length && text[end] != '\n') ++end;
        ids[count] = @_find_%(v)s(text + at, end - at);
        if (ids[count] < 4) ids[count] = 0;
        at = end + 1;
    }
    (void)c;

/// find_lowercase_token
/* Return the id of a token in lower case. */
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

/// skip_marks
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

/// encode_punctuated
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
        if (flags & %(mark)du) { /* combining marks without a base character */
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
                if (c == '\'' || c == 0x2019 || c == '-') { /* inside a word, if a letter follows */
                    if (behind >= length) break;
                    bytes = @_character(text, length, behind, &c);
                    behind += bytes;
                }
                flags = @_flags(c);
                if (!(flags & %(word)du) || flags & %(han)du || flags & %(mark)du) break;
                end = @_behind_marks(text, length, behind, &joined);
            }
        } else { /* a symbol with its marks, and symbols joined by U+200D */
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
    }

/// encode_subwords
    float best[%(room)d];
    int32_t from[%(room)d], piece[%(room)d];
    while (at <= length && count < most) { /* Viterbi search for the most likely pieces of each line */
        int32_t end = at, n, back;
        while (end < length && text[end] != '\n' && end - at < %(longest)d) ++end;
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
                    memcpy(own + made, "\xE2\x96\x81", 3);
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
        if (text[end] == '\n') {
            if (count < most) ids[count++] = %(eos)d;
            ++end;
        }
        at = end;
    }

/// decode_token
/* Write the text of a token that follows token `before` (or -1) into `room` bytes; return its length, -1: no room. */
@@_API int32_t @_text(int32_t before, int32_t id, char *to, int32_t room) {
%(body)s}

/// decode_char
    int32_t length;
    const char *const bytes = @_token(id, &length);
    (void)before;
    if (length > room) return -1;
    memcpy(to, bytes, (size_t)length);
    return length;

/// decode_word
    int32_t length, space;
    const char *const bytes = id == %(eos)d ? "\n" : @_token(id, &length);
    if (id == %(eos)d) length = 1;
    space = before >= 0 && before != %(eos)d && id != %(eos)d;
    if (length + space > room) return -1;
    if (space) to[0] = ' ';
    memcpy(to + space, bytes, (size_t)length);
    return length + space;

/// decode_space
    int32_t length;
    const char *const bytes = @_token(id, &length);
    const int32_t space = before >= 0;
    if (length + space > room) return -1;
    if (space) to[0] = ' ';
    memcpy(to + space, bytes, (size_t)length);
    return length + space;

/// decode_subword
    int32_t length, made = 0;
    const char *const bytes = @_token(id, &length);
    (void)before;
    if (id == %(eos)d) {
        if (room < 1) return -1;
        to[0] = '\n';
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
        const int32_t blank = k + 3 <= length && !memcmp(bytes + k, "\xE2\x96\x81", 3);
        if (made >= room) return -1;
        to[made++] = blank ? ' ' : bytes[k];
        if (blank) k += 2;
    }
    return made;

/// lowercase_text
/* Convert a text to lower case into `room` bytes; return the length. */
static int32_t @_lowered(const char *text, int32_t length, char *to, int32_t room) {
    int32_t made = 0;
    uint32_t c, before = 0;
    for (int32_t at = 0; at < length && made + 8 <= room;) {
        const int32_t bytes = @_character(text, length, at, &c);
        uint32_t behind = 0, small = @_lower(c);
        if (c == 0x3A3) { /* final sigma */
            if (at + bytes < length) @_character(text, length, at + bytes, &behind);
            if (@_flags(before) & %(alpha)du && !(@_flags(behind) & %(alpha)du)) small = 0x3C2;
        }
        if (c == 0x130) {
            to[made++] = 'i';
            small = 0x307;
        }
        made += @_write_character(small, to + made);
        before = c;
        at += bytes;
    }
    return made;
}

/// count_ngram
/* Count one n-gram if the vocabulary has it; return the number of distinct n-grams. */
static int32_t @_gram(@_work *work, int32_t found, const char *bytes, int32_t length) {
    const int32_t id = @_find_ngrams(bytes, length);
    if (id < 4) return found;
    for (int32_t k = 0; k < found; ++k)
        if (work->grams[k] == id - 4) {
            work->counts[k] += 1.0f;
            return found;
        }
    if (found == @@_LONGEST) return found;
    work->grams[found] = id - 4;
    work->counts[found] = 1.0f;
    return found + 1;
}

/// character_ngrams
static int32_t @_grams(@_work *work, const char *text, int32_t length) {
    int32_t found = 0, made = 1, own = @_lowered(text, length, work->small, (int32_t)sizeof work->small), space = 0;
    uint32_t c;
    work->line[0] = ' ';
    for (int32_t at = 0; at < own && made + 8 < (int32_t)sizeof work->line;) { /* collapse white space */
        const int32_t bytes = @_character(work->small, own, at, &c);
        if (@_is_space(c)) {
            space = 1;
        } else {
            if (space && made > 1) work->line[made++] = ' ';
            memcpy(work->line + made, work->small + at, (size_t)bytes);
            made += bytes;
            space = 0;
        }
        at += bytes;
    }
    work->line[made++] = ' ';
    for (int32_t at = 0; at < made;) {
        int32_t end = at;
        const int32_t first = @_character(work->line, made, at, &c);
        for (int32_t n = 0; n < 5 && end < made; ++n) {
            end += @_character(work->line, made, end, &c);
            found = @_gram(work, found, work->line + at, end - at);
        }
        at += first;
    }
    return found;
}

/// word_ngrams
static int32_t @_grams(@_work *work, const char *text, int32_t length) {
    int32_t found = 0, own = @_lowered(text, length, work->small, (int32_t)sizeof work->small), before = -1, behind = 0;
    uint32_t c;
    for (int32_t at = 0; at < own;) {
        int32_t end = at + @_character(work->small, own, at, &c);
        if (@_is_space(c)) {
            at = end;
            continue;
        }
        if (@_flags(c) & %(word)du)
            while (end < own) {
                const int32_t bytes = @_character(work->small, own, end, &c);
                if (!(@_flags(c) & %(word)du)) break;
                end += bytes;
            }
        found = @_gram(work, found, work->small + at, end - at);
        if (before >= 0 && behind - before + 1 + end - at < (int32_t)sizeof work->line) {
            memcpy(work->line, work->small + before, (size_t)(behind - before));
            work->line[behind - before] = ' ';
            memcpy(work->line + behind - before + 1, work->small + at, (size_t)(end - at));
            found = @_gram(work, found, work->line, behind - before + 1 + end - at);
        }
        before = at;
        behind = end;
        at = end;
    }
    return found;
}

/// call_ngrams
    int32_t found = @_grams(work, text, length);
    if (found == 0) { /* the graph needs at least one n-gram: one with count 0 */
        work->grams[0] = 0;
        work->counts[0] = 0.0f;
        found = 1;
    }

/// casing
/* Casing class of a word, as in recur.data.text.tokenizers. */
static int32_t @_casing(const char *text, int32_t length) {
    int32_t letters = 0, digits = 0, count = 0, upper = 0, lower = 0, title = 0;
    int32_t first_upper = 0, later_other = 0, later_lower = 0;
    uint32_t c;
    for (int32_t at = 0; at < length; ++count) {
        uint32_t flags;
        at += @_character(text, length, at, &c);
        flags = @_flags(c);
        digits += (flags & %(digit)du) != 0;
        upper += (flags & %(upper)du) != 0;
        lower += (flags & %(lower)du) != 0;
        title += (flags & %(title)du) != 0;
        if (flags & %(alpha)du) {
            if (!letters) first_upper = (flags & %(upper)du) != 0;
            else if (flags & (%(upper)du | %(title)du)) later_other = 1;
            else if (flags & %(lower)du) later_lower = 1;
            ++letters;
        }
    }
    if (digits) return letters ? 6 : digits == count ? 4 : 5;
    if (!letters) return 7;
    if (lower && !upper && !title) return 0;
    if (upper && !lower && !title) return letters > 1 ? 2 : 1;
    if (first_upper && later_lower && !later_other) return 1;
    return upper ? 3 : 8;
}

/// spell_word
/* Write the character ids of a word and return their number; the middle of a long word is skipped. */
static int32_t @_spelled(const char *text, int32_t length, int32_t *ids) {
    int32_t count = 0, skip = 0, made = 0;
    uint32_t c;
    for (int32_t at = 0; at < length; ++count) at += @_character(text, length, at, &c);
    skip = count > %(longest)d ? count - %(longest)d : 0;
    for (int32_t at = 0, k = 0; at < length; ++k) {
        const int32_t bytes = @_character(text, length, at, &c);
        if (!skip || k < %(half)d || k >= %(half)d + skip) ids[made++] = @_find_characters(text + at, bytes);
        at += bytes;
    }
    return made;
}
