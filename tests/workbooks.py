"""Writer of small Excel workbooks, by the specification and not by recur's reader."""

from __future__ import annotations

import datetime
import zipfile
from collections.abc import Sequence
from pathlib import Path
from xml.sax.saxutils import escape

TYPES = """<?xml version="1.0"?><Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">
<Default Extension="xml" ContentType="application/xml"/></Types>"""
BOOK = """<?xml version="1.0"?><workbook xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"
xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships">
<sheets><sheet name="old" sheetId="1" state="hidden" r:id="rId9"/><sheet name="a" sheetId="2" r:id="rId1"/></sheets>
</workbook>"""
RELATIONS = """<?xml version="1.0"?><Relationships
xmlns="http://schemas.openxmlformats.org/package/2006/relationships">
<Relationship Id="rId1" Type="worksheet" Target="worksheets/sheet1.xml"/></Relationships>"""
STYLES = """<?xml version="1.0"?><styleSheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main">
<numFmts count="1"><numFmt numFmtId="164" formatCode="dd/mm/yyyy"/></numFmts>
<cellXfs count="3"><xf numFmtId="0"/><xf numFmtId="14"/><xf numFmtId="164"/></cellXfs></styleSheet>"""


def write_workbook(path: Path, rows: Sequence[Sequence[object]]) -> str:
    """Write rows of texts, numbers, booleans, dates and None as the first visible sheet."""
    texts: list[str] = []
    lines = []
    for r, row in enumerate(rows, start=1):
        cells = []
        for c, value in enumerate(row):
            at = f'r="{chr(65 + c)}{r}"'
            if isinstance(value, str):
                texts.append(f"<si><t>{escape(value)}</t></si>")
                cells.append(f'<c {at} t="s"><v>{len(texts) - 1}</v></c>')
            elif isinstance(value, bool):
                cells.append(f'<c {at} t="b"><v>{int(value)}</v></c>')
            elif isinstance(value, datetime.date):
                days = (value - datetime.date(1899, 12, 30)).days
                cells.append(f'<c {at} s="{1 + r % 2}"><v>{days}</v></c>')
            elif value is not None:
                cells.append(f"<c {at}><v>{value}</v></c>")
        lines.append(f'<row r="{r}">{"".join(cells)}</row>')
    space = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("[Content_Types].xml", TYPES)
        archive.writestr("xl/workbook.xml", BOOK)
        archive.writestr("xl/_rels/workbook.xml.rels", RELATIONS)
        archive.writestr("xl/styles.xml", STYLES)
        archive.writestr("xl/sharedStrings.xml", f"<sst {space}>{''.join(texts)}</sst>")
        body = f"<worksheet {space}><sheetData>{''.join(lines)}</sheetData></worksheet>"
        archive.writestr("xl/worksheets/sheet1.xml", body)
    return str(path)
