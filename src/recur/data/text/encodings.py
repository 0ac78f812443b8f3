"""Bytes that are not UTF-8: what they may be instead, and what makes UTF-8 of them."""

from __future__ import annotations

import codecs

UTF_16 = "UTF-16, iconv -f utf-16 -t utf-8 makes it UTF-8"


def not_utf8(name: str, offset: int, data: bytes, error: UnicodeDecodeError) -> str:
    """What is wrong with a file's bytes, and which encoding they may have instead."""
    hint = "is it another encoding? iconv -f latin1 -t utf-8 makes it UTF-8"
    if offset == 0 and data[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        hint = f"it looks like {UTF_16}"
    elif _is_chinese(data):
        hint = "it looks like Chinese in GB 18030, iconv -f gb18030 -t utf-8 makes it UTF-8"
    return f"{name} is not UTF-8 at byte {offset} (0x{data[error.start]:02x}, {error.reason}); {hint}"


def _is_chinese(data: bytes) -> bool:
    """Bytes above ASCII come in pairs that GB 2312 has; Latin-1 has them one by one between letters."""
    try:
        text = codecs.getincrementaldecoder("gb2312")("strict").decode(data)
    except UnicodeDecodeError:
        return False
    return any("一" <= letter <= "龥" for letter in text)
