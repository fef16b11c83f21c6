"""Workbooks for tests, made as spreadsheet programs make them."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Sequence
from html import escape

MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
HEAD = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'


def workbook(
    *sheets: Sequence[Sequence[str]], shared: bool = True, parts: dict[str, str] | None = None
) -> bytes:
    """A workbook of these sheets, each a list of rows. `shared`: its texts are kept apart, as Excel
    does. `parts` replaces or adds parts."""
    texts: list[str] = []
    content = {
        "[Content_Types].xml": f"{HEAD}<Types/>",
        "xl/workbook.xml": f'{HEAD}<workbook xmlns="{MAIN}"/>',
    }
    for number, rows in enumerate(sheets, 1):
        lines = []
        for place, row in enumerate(rows, 1):
            cells = "".join(
                _cell(f"{chr(65 + column)}{place}", text, texts, shared)
                for column, text in enumerate(row)
                if text
            )
            if cells:
                lines.append(f'<row r="{place}">{cells}</row>')
        content[f"xl/worksheets/sheet{number}.xml"] = (
            f'{HEAD}<worksheet xmlns="{MAIN}"><sheetData>{"".join(lines)}</sheetData></worksheet>'
        )
    if shared:
        entries = "".join(f"<si><t>{escape(text)}</t></si>" for text in texts)
        content["xl/sharedStrings.xml"] = f'{HEAD}<sst xmlns="{MAIN}">{entries}</sst>'
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in (content | (parts or {})).items():
            archive.writestr(name, text)
    return out.getvalue()


def _cell(reference: str, text: str, texts: list[str], shared: bool) -> str:
    if not shared:
        return f'<c r="{reference}" t="inlineStr"><is><t>{escape(text)}</t></is></c>'
    texts.append(text)
    return f'<c r="{reference}" t="s"><v>{len(texts) - 1}</v></c>'
