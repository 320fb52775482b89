"""Files as hospitals and analysts export them, all of the same three rows, and what is to become of each."""

# ruff: noqa: E501, since the table has a line for each file

from __future__ import annotations

import gzip
import io
import re
import zipfile
from dataclasses import dataclass

SCHEMA = """
missing_values = ["", "NA"]

[columns.age]

[columns.chol]
missing = "flag"

[columns.sex]
categories = ["f", "m"]

[columns.outcome]
role = "target"
categories = ["no", "yes"]
"""
BASE = "age,chol,sex,outcome\n61,200.5,f,no\n57,NA,m,yes\n73,1180.25,f,yes\n"
FEATURES = [[61, 200.5, 0, 1, 0], [57, 0, 1, 0, 1], [73, 1180.25, 0, 1, 0]]
TARGETS = [0, 1, 1]
VALUES = ("61", "57", "73", "200", "1180", "1,180", "1.180", "25")


def swap(*pairs: tuple[str, str], of: str = BASE) -> str:
    for was, now in pairs:
        assert was in of
        of = of.replace(was, now)
    return of


def zipped(*names: str) -> bytes:
    """An archive of files, each with the rows."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name in names:
            archive.writestr(name, BASE)
    return packed.getvalue()


@dataclass(frozen=True)
class File:
    """A file that somebody exports.

    Args:
        name: what is awkward.
        text: what is in it.
        refused: the cause that is named without a reading; None where it is read so.
        reading: with which it is read; None where it has to be changed.
        suffix: of its name.
    """

    name: str
    text: str | bytes
    refused: str | None = None
    reading: str | None = None
    suffix: str = ".csv"


LONGER = BASE + BASE.partition("\n")[2] * 3
"""The same rows four times."""

SEMICOLONS = swap((",", ";"))
GERMAN = swap(("200.5", "200,5"), ("1180.25", "1.180,25"), of=SEMICOLONS)
WHOLE = swap(("200.5", "0200"), ("1180.25", "1180")).replace("0200", "200.5")

FILES = [
    File("as it should be", BASE),
    # read as they are
    File("byte order mark", "\ufeff" + BASE),
    File("lines of Windows", BASE.replace("\n", "\r\n")),
    File("lines of old Macs", BASE.replace("\n", "\r")),
    File("no line end at the end", BASE.rstrip()),
    File("blank lines", BASE.replace("\n", "\n\n")),
    File("rows of nothing below, as spreadsheets leave them", BASE + ",,,\n , ,,\n"),
    File("blanks around values", BASE.replace(",", " , ")),
    File("no-break spaces", swap(("f,", "f\u00a0,"), ("61", "\u202f61"))),
    File("a zero-width space", swap(("57", "\u200b57"))),
    File("capital letters", swap((",f,", ",F,"), ("yes", "Yes"))),
    File("all in quotation marks", re.sub(r"[^,\n]+", r'"\g<0>"', BASE)),
    File("quotation marks behind a blank", swap(("f,", ' "f",'))),
    File("a line sep=", "sep=;\n" + SEMICOLONS),
    File("a line sep= for tabs", "sep=\t\r\n" + BASE.replace(",", "\t").replace("\n", "\r\n")),
    File("other columns, one with all that a text may hold", swap(("61", '"Ada, ""A""\nB;",61'), ("age", "name,age"), ("57", "Bo,57"), ("73", ",73"))),
    File("another column twice", swap(("age", "x,x,age"), ("61", "1,2,61"), ("57", "1,2,57"), ("73", "1,2,73"))),
    File("names of rows, as R's write.csv gives them", swap(("age", '"",age'), ("61", '"1",61'), ("57", '"2",57'), ("73", '"3",73'))),
    File("a separator at the end of all lines", BASE.replace("\n", ",\n")),
    File("columns in another order", "outcome,sex,chol,age\nno,f,200.5,61\nyes,m,NA,57\nyes,f,1180.25,73\n"),
    File("texts as formulas", swap(("61", '="61"'), ("f,no", '="f",no'))),
    File("full-width digits", swap(("61", "６１"))),
    File("Arabic digits", swap(("57", "٥٧"))),
    File("whole numbers as reals", swap(("61", "61.0"), ("57", "5.7e1"), ("73", "+73."))),
    File("zeros in front", swap(("61", "061"))),
    File("packed", gzip.compress(BASE.encode()), suffix=".csv.gz"),
    File("capital ending", BASE, suffix=".CSV"),
    File("tabs in .tsv", BASE.replace(",", "\t"), suffix=".tsv"),
    File("commas in .txt", BASE, suffix=".txt"),
    # laid out otherwise
    File("semicolons", SEMICOLONS, "looks separated by semicolons", 'separator = ";"'),
    File("semicolons, decimal commas", GERMAN, "looks separated by semicolons", 'separator = ";"\ndecimal = ","\nthousands = "."'),
    File("tabs in .csv", BASE.replace(",", "\t"), "looks separated by tabs", 'separator = "\\t"'),
    File("bars", BASE.replace(",", "|"), "looks separated by vertical bars", 'separator = "|"'),
    File("columns of blanks", BASE.replace(",", "   "), "looks separated by blanks", 'separator = " "'),
    File("commas in .tsv", BASE, "looks separated by commas", 'separator = ","', suffix=".tsv"),
    File("UTF-16 with its mark", BASE.encode("utf-16"), r"look like utf-16\.", 'encoding = "utf-16"'),
    File("UTF-16 without", BASE.encode("utf-16-le"), "looks like utf-16-le", 'encoding = "utf-16-le"'),
    File("UTF-16 with its mark before a quotation mark", swap(("age", '"age"')).encode("utf-16"), r"look like utf-16\.", 'encoding = "utf-16-le"'),
    File("Windows letters", swap(("age", "größe,age"), ("61", "1,61"), ("57", "1,57"), ("73", "1,73")).encode("cp1252"), "look like cp1252", 'encoding = "cp1252"'),
    File("letters of Windows in values", swap(("age", "ort,age"), ("61", "Köln,61"), ("57", ",57"), ("73", ",73")).encode("latin-1"), "look like cp1252", 'encoding = "latin-1"'),
    File("titles above", "Report of today\n\n" + BASE, "looks as if its table began in line 3: state skip_lines = 2", "skip_lines = 2"),
    File("comments", "# made by a device\n" + BASE + "# end\n", "begins with a comment", 'comment = "#"'),
    File("no names", BASE.partition("\n")[2], "no line of it names columns", 'names = ["age", "chol", "sex", "outcome"]'),
    File("a second line of units", swap(("outcome\n", "outcome\nyears,mg/dl,,\n")), "column age needs a finite number, and 1 of 4 rows", 'skip_lines = 2\nnames = ["age", "chol", "sex", "outcome"]'),
    File("R's write.table", '"age" "chol" "sex" "outcome"\n"1" 61 200.5 "f" "no"\n"2" 57 NA "m" "yes"\n"3" 73 1180.25 "f" "yes"\n', "looks separated by blanks", 'separator = " "\nskip_lines = 1\nnames = ["row", "age", "chol", "sex", "outcome"]'),
    File("a separator behind rows alone", swap((",no\n", ",no,\n"), (",yes\n", ",yes,\n")), "one value more than there are names, at their end, empty", 'skip_lines = 1\nnames = ["age", "chol", "sex", "outcome", "nothing"]'),
    File("rows of different length", swap(("200.5", "200,5")), "1 of 3 rows have another number"),
    File("a total below", BASE + "Total,,,3\n", "1 of 4 rows have another text: it is the last row: if it holds a total or a remark"),
    File("each line in quotation marks", "".join(f'"{line}"\n' for line in BASE.splitlines()), "each line in quotation marks as a whole"),
    File("other quotation marks", swap(("f,", "'f',"), ("m,", "'m',")), "column sex needs one of f, m", "quote = \"'\""),
    File("a quotation mark that is a text", swap(("age", "note,age"), ("61", '"tube,61'), ("57", ",57"), ("73", ",73")), "line 2: it must be CSV in UTF-8", 'quote = ""'),
    File("cut off", gzip.compress(BASE.encode())[:-12], "cut off", suffix=".csv.gz"),
    File("nothing", "", "is empty: give the table with its rows"),
    File("a sign between two numbers", swap(("200.5", "200\x02210")), "1 of 3 rows have another text"),
    File("a field's mark between two numbers", swap(("200.5", "200\x1f210")), "1 of 3 rows have another text"),
    File("a row within a text", swap(("age", "note,age"), ("61", '"tube,61'), ("57", 'late",57'), ("73", ",73")), "line 2: a quotation mark opens there, and whole rows lie in one text"),
    File("rows within a text behind", swap((",no", ',no,"tube'), ("outcome", "outcome,remark"), ("m,yes", "m,yes,"), ("f,yes", 'f,yes,late"')), "line 2: a quotation mark opens there, and whole rows"),
    File("lines and separators within a text", swap(("age", "age,note"), ("61", '61,"first, then\nlater, or\nnever, ever, at all, no"'), ("57", "57,"), ("73", "73,"))),
    File("colons", BASE.replace(",", ":"), 'looks separated by the sign ":"', 'separator = ":"'),
    File("a sign of databases", swap(("NA", "?")).replace(",", "\1"), r'by the sign "\\u0001"', 'separator = "\\u0001"\n[columns.chol]\nmissing = ["?"]'),
    File("drawn by a database", " age | chol\n-----+------\n  61 | 200.5\n(1 row)\n", "is drawn with lines"),
    File("drawn with a frame", "+-----+------+\n| age | chol |\n+-----+------+\n| 61 | 200.5 |\n", "is drawn with lines"),
    File("the end of a file of DOS", BASE + "\x1a"),
    File("a separator behind the names alone", swap(("outcome\n", "outcome,\n"))),
    File("a line within a name", swap(("chol", '"chol\n(mg/dl)"')), r'State name = "chol \(mg/dl\)"', '[columns.chol]\nname = "chol (mg/dl)"'),
    File("lines within a value", swap(("f,no", '"f\n",no'))),
    File("a long text", swap(("age", "note,age"), ("61", "x" * 2**18 + ",61"), ("57", ",57"), ("73", ",73"))),
    File("a total that nothing else shows", swap(("age", "case,age"), ("61", "1,61"), ("57", "2,57"), ("73", "Total:,73")), "line 4: the last row says that it is a total"),
    File("carets", BASE.replace(",", "^"), "looks separated by carets", 'separator = "^"'),
    File("groups of columns above their names", "Person,,,State\n" + BASE, r"names of its columns in line 2: state skip_lines = 1", "skip_lines = 1"),
    File("names again below", BASE + BASE, "line 5, repeats the names of the columns"),
    File("a remark below", BASE + "(3 rows)\n", "line 5: 4 values are needed"),
    File("backslashes before quotation marks", swap(("age", "name,age"), ("61", '"A \\"B\\" C, D",61'), ("57", "\\N,57"), ("73", ",73")), "has backslashes before quotation marks", "escape = '\\'"),
    File("packed, without the ending", gzip.compress(BASE.encode()), "is packed: let its name end in .csv.gz"),
    File("an archive", b"PK\3\4" + BASE.encode(), "is a ZIP archive: unpack it"),
    File("an archive of a packed file", zipped("rows.csv.gz"), r"is a ZIP archive of 1 files, rows\.csv\.gz: unpack it"),
    File("a workbook of LibreOffice", zipped("content.xml", "mimetype"), "spreadsheet of LibreOffice", suffix=".ods"),
    File("a workbook, by its content", zipped("xl/workbook.xml"), r"a workbook: let its name end in \.xlsx"),
    *(File(f"packed as {sign!r}", sign + b"\0" * 9, "is packed: unpack it") for sign in (b"BZh9", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd", b"7z\xbc\xaf")),
    File("named as packed", BASE, "is named as packed, and is not", suffix=".csv.gz"),
    *(
        File(f"a file of {what}, named otherwise", start + b"\0" * 99, f"let its name end in {ending}")
        for what, start, ending in (("SPSS", b"$FL2@(#)", ".sav"), ("Stata", b"<stata_dta>", ".dta"), ("SAS", b"HEADER RECORD***", ".xpt"))
    ),
    File("a database", b"SQLite format 3" + b"\0" * 99, "is a database"),
    File("an object of R", b"RDX3\n", "a file of a programming language", suffix=".rda"),
    File("lines of JSON", '{"age": 61}\n{"age": 57}\n', "must end in .*; it is JSON", suffix=".jsonl"),
    File("text named as a workbook", BASE, r"it is delimited text: let its name end in \.csv", suffix=".xlsx"),
    File("text named as Parquet", BASE, r"it is delimited text: let its name end in \.csv", suffix=".parquet"),
    File("a workbook with a password", b"\xd0\xcf\x11\xe0" + b"\0" * 99, "or one with a password", suffix=".xlsx"),
    File("no text at all", bytes(range(8)) * 30, "is no text, whatever its name says"),
    File("letters of DOS", swap(("age", "größe,age"), ("61", "1,61"), ("57", "1,57"), ("73", "1,73")).encode("cp850"), "look like cp850", 'encoding = "cp850"'),
    File("letters of an old Mac", swap(("age", "größe,age"), ("61", "1,61"), ("57", "1,57"), ("73", "1,73")).encode("mac_roman"), "look like mac_roman", 'encoding = "mac_roman"'),
    File("letters of a mainframe", BASE.encode("cp500"), "look like cp500", 'encoding = "cp500"'),
    File("a mainframe's file without lines", BASE.replace("\n", "  ").encode("cp500"), r"a file of a mainframe \(EBCDIC\) without ends of lines"),
    File("an old workbook", b"\xd0\xcf\x11\xe0" + BASE.encode(), "is a workbook of an old spreadsheet"),
    File("a web page", "<!DOCTYPE html>\n<table><tr><td>age</td></tr></table>", "is a web page or XML"),
    File("a dump", "INSERT INTO heart VALUES (61,200.5,'f','no');\n", "is a dump of SQL"),
    File("JSON", '[{"age": 61, "sex": "f"}]', "is JSON"),
    File("ARFF", "@relation heart\n@data\n61,200.5,f,no\n", "is ARFF"),
    File("signs that nobody sees", swap(("f,no", "f\0,\u00adno"), ("61", "\u200e61"))),
    # named otherwise
    File("names in capitals", swap(("age", "AGE")), 'another spelling. State name = "AGE"', '[columns.age]\nname = "AGE"'),
    File("names with blanks", swap(("age", " age "))),
    File("another language", swap(("age", "Alter (Jahre)")), r'state name = "\.\.\." in \[client\.reading\.columns\.age\]', '[columns.age]\nname = "Alter (Jahre)"'),
    File("a used column twice", swap(("age", "age,age"), ("61", "61,0"), ("57", "57,0"), ("73", "73,0")), "age occurs several times", 'skip_lines = 1\nnames = ["age", "age2", "chol", "sex", "outcome"]'),
    # numbers written otherwise
    File("decimal commas in quotation marks", swap(("200.5", '"200,5"'), ("1180.25", '"1180,25"')), "2 of 3 rows have another text: they have a decimal comma: state decimal", 'decimal = ","'),
    File("decimal commas alone", swap(("200.5", "200,5"), ("1180.25", "1180,25"), of=SEMICOLONS), "semicolons", 'separator = ";"\ndecimal = ","'),
    File("thousands of America", swap(("1180.25", '"1,180.25"')), 'commas between thousands: state thousands = ","', 'thousands = ","'),
    File("thousands of Germany", swap(("200.5", '"200,5"'), ("1180.25", '"1.180,25"')), 'state decimal = "," and thousands = "."', 'decimal = ","\nthousands = "."'),
    File("thousands of Sweden", swap(("1180.25", "1\u00a0180.25")), "blanks between thousands", 'thousands = " "'),
    File("thousands of France", swap(("1180.25", '"1\u202f180,25"'), ("200.5", '"200,5"')), 'state decimal = "," and thousands = " "', 'decimal = ","\nthousands = " "'),
    File("thousands of Switzerland", swap(("1180.25", "1'180.25")), "apostrophes between thousands", "thousands = \"'\""),
    File("thousands of Swiss printers", swap(("1180.25", "1’180.25")), "apostrophes between thousands", "thousands = \"'\""),
    File("thousands of Germany without decimals", swap(("61", "950"), ("57", "1.057"), ("73", "1.073")), "1.234 may be 1234"),
    File("three digits behind a comma", swap(("200.5", '"200,500"')), "may mark thousands or decimals", None),
    File("underscores", swap(("1180.25", "1_180.25")), "underscores between digits"),
    File("a bound", swap(("200.5", "<300")), "bounds as laboratories write them", '[columns.chol]\nrecode = { "<300" = "200.5" }'),
    File("a unit behind the number", swap(("200.5", "200.5 mg/dl")), "a unit or a remark beside the number"),
    File("percent", swap(("61", "61%")), "they have percent signs"),
    File("dates", swap(("61", "1961-03-02")), "they are dates or times"),
    File("dates of Europe", swap(("61", "02.03.1961")), "they are dates or times"),
    File("times", swap(("61", "12:30")), "they are dates or times"),
    *(File(f"money as {one}", swap(("200.5", one)), "a unit or a remark beside the number") for one in ("$200.5", "200.5 €", "EUR 200.5")),
    *(File(f"a range as {one}", swap(("200.5", one)), "they are ranges") for one in ("199-211", "199 - 211", "199 bis 211")),
    *(File(f"marks as {one}", swap(("200.5", one)), "several decimal marks") for one in ("1.210.5", "210..5", "..")),
    *(File(f"{one} for a number", swap(("200.5", one)), "words for yes and no") for one in ("Ja", "TRUE", "non")),
    File("a duration", swap(("61", "62 days 00:00:00")), "they are dates or times"),
    *(File(f"two numbers as {one}", swap(("200.5", one)), "two numbers with a stroke between") for one in ("120/80", "1/2", "6 / 9")),
    File("an exponent of Fortran", swap(("200.5", "2.005D+02")), "exponents of Fortran"),
    File("a mainframe's signs", swap(("200.5", "20050{"), ("1180.25", "118025B")), "a sign of a mainframe"),
    File("a comparator of HL7", swap(("200.5", "=200.5")), "begin with an equals sign"),
    *(File(f"a spreadsheet's {one} for a number", swap(("200.5", one)), "a spreadsheet made dates of numbers") for one in ("1. Mai", "May 05", "3.5.")),
    File("a sign for infinity", swap(("200.5", "∞")), "they are infinite"),
    File("too many digits, with a point", swap(("61", "9007199254740993.0")), "whole numbers of more digits than float64 holds"),
    File("more digits than a number holds", swap(("61", "9007199254740993")), "whole numbers of more digits than float64 holds"),
    File("as many digits as a number holds", swap(("61", "9007199254740992")), None, '[columns.age]\nrecode = { "9007199254740992" = "61" }'),
    File("infinity", swap(("200.5", "inf")), "infinite"),
    File("a sign behind", swap(("200.5", "200.5-")), "sign behind them"),
    File("an accountant's minus", swap(("200.5", "(200.5)")), "sign behind them, or brackets"),
    File("another unit", swap(("200.5", "100.25"), ("1180.25", "590.125")), None, "[columns.chol]\nfactor = 2.0"),
    File("another unit and zero", swap(("200.5", "433"), ("1180.25", "2392.5")), None, "[columns.chol]\nfactor = 0.5\nadd = -16.0"),
    # missing otherwise
    *(
        File(f"{code} for missing", swap(("NA", code)), re.escape(f"they are {code}, as people write what is missing"), f"[columns.chol]\nmissing = ['{code}']")
        for code in ("?", ".", "n/a", "NaN", "NULL", "None", "#N/A", "#DIV/0!", "unknown", "k.A.", "\\N", "-", "–", ".A", "._", "n.a.", "(null)", "(leer)", "1.#IND", "*", "UNK", "ASKU")
    ),
    File("na for NA", swap(("NA", "na"))),
    File("-9 for missing", swap(("NA", "-9")), None, '[columns.chol]\nmissing = ["-9"]'),
    File("-9 as a real", swap(("NA", "-9.00")), None, '[columns.chol]\nmissing = ["-9"]'),
    File("0 for missing in one column", swap(("NA", "0")), None, '[columns.chol]\nmissing = ["0"]'),
    File("a code in all columns", swap(("NA", "999")), None, 'missing = ["999"]'),
    File("a missing target", swap(("f,no", "f,")), r"missing in 1 of 3 rows\. Repair the table or leave these rows out of it; or all sites agree on missing = .leave out. for it$"),
    # classes written otherwise
    File("a mark or nothing for classes", swap((",f,", ",x,"), (",m,", ",,")), "column sex needs", '[columns.sex]\nrecode = { "x" = "f", "" = "m" }'),
    File("codes for classes", swap((",f,", ",2,"), (",m,", ",1,")), "they are numbers, codes perhaps: state recode", '[columns.sex]\nrecode = { "1" = "m", "2" = "f" }'),
    File("codes as reals", swap((",f,", ",2.0,"), (",m,", ",1.0,")), "they are numbers, codes perhaps", '[columns.sex]\nrecode = { "1" = "m", "2" = "f" }'),
    File("codes as numpy writes them", swap((",f,", ",2.000000000000000000e+00,"), (",m,", ",1.000000000000000000e+00,")), "they are numbers, codes perhaps", '[columns.sex]\nrecode = { "1" = "m", "2" = "f" }'),
    File("words for classes", swap((",f,", ",Frau,"), (",m,", ",Mann,")), "they are other texts: state recode", '[columns.sex]\nrecode = { Frau = "f", mann = "m" }'),
    File("truths for classes", swap((",no", ",FALSE"), (",yes", ",TRUE")), "column outcome needs one of no, yes", '[columns.outcome]\nrecode = { "false" = "no", "true" = "yes" }'),
    # what the first sentence once got wrong
    File("a new category in the first row alone", LONGER.replace(",f,", ",x,", 1), "line 2: column sex needs one of f, m, and 1 of 12 rows have another text: they are other texts"),
    File("a new category in the last row alone", ",x,".join(LONGER.rsplit(",f,", 1)), "line 13: column sex needs one of f, m, and 1 of 12 rows have another text: they are other texts"),
    File("a mean and a deviation below", LONGER + "Mean,412,,\nSD,31,,\n", "2 of 14 rows have another text: these rows have no value in most columns"),
    File("a line between pages", LONGER.replace("73,", "Page 1 of 4,,,\n73,", 1), "1 of 13 rows have another text: these rows have no value in most columns"),
    File("decimal points, and a comma in one row", swap(("200.5", '"200,5"'), ("NA", "211.5")), "a decimal comma, and other rows a decimal point, as where rows of two exports became one"),
    File("decimal commas without quotation marks in all rows", "age,chol,sex,outcome\n61,200,5,f,no\n61,211,5,m,yes\n73,1180,25,f,yes\n", "one value more than there are names, as where numbers have a decimal comma"),
    File("decimal commas without quotation marks in two columns", "age,chol,sex,outcome\n61,5,200,5,f,no\n61,5,211,5,m,yes\n", "line 2: 4 values are needed, as in its first line, not 6"),
    File("joined files with their marks", BASE + "\ufeff" + BASE, "line 5, repeats the names of the columns"),
    File("joined files with columns in another order", BASE + "sex,age,chol,outcome\nf,61,200.5,no\n", "line 5, repeats the names of the columns"),
    File("names with semicolons above rows with commas", "age;chol;sex;outcome\n" + BASE.partition("\n")[2], "has names separated by semicolons, and rows by commas", 'skip_lines = 1\nnames = ["age", "chol", "sex", "outcome"]'),
    File("names with commas above rows with semicolons", "age,chol,sex,outcome\n" + SEMICOLONS.partition("\n")[2], "has names separated by commas, and rows by semicolons", 'separator = ";"\nskip_lines = 1\nnames = ["age", "chol", "sex", "outcome"]'),
    File("names behind a sign of comments", swap(("age", "#age")), 'another spelling. State name = "#age"', '[columns.age]\nname = "#age"'),
    File("comments above names behind their sign", "## a device\n" + swap(("age", "#age")), "begins with comments, and line 2 names columns: state skip_lines = 1", 'skip_lines = 1\n[columns.age]\nname = "#age"'),
    File("two spellings of one name", swap(("age", "Age,AGE"), ("61", "61,0"), ("57", "57,0"), ("73", "73,0")), r"State name = \.\.\. \(one of Age, AGE\)", '[columns.age]\nname = "Age"'),
    File("letters of Cyrillic", swap(("age", "пол,age"), ("61", "жен,61"), ("57", "муж,57"), ("73", "жен,73")).encode("cp1251"), "its letters are of another alphabet than Latin. State its encoding", 'encoding = "cp1251"'),
    File("letters of Greece", swap(("age", "φύλο,age"), ("61", "θήλυ,61"), ("57", "άρρεν,57"), ("73", "θήλυ,73")).encode("cp1253"), "another alphabet than Latin", 'encoding = "cp1253"'),
    File("signs of China", swap(("age", "性别,age"), ("61", "女,61"), ("57", "男,57"), ("73", "女,73")).encode("gb18030"), "another alphabet than Latin", 'encoding = "gb18030"'),
    File("signs of Japan", swap(("age", "性別,age"), ("61", "女性,61"), ("57", "男性,57"), ("73", "女性,73")).encode("shift_jis"), "another alphabet than Latin", 'encoding = "shift_jis"'),
    File("letters of Poland", swap((",f,", ",żeńska,"), (",m,", ",męska,")).encode("cp1250"), "its bytes look like cp1250", 'encoding = "cp1250"\n[columns.sex]\nrecode = { "żeńska" = "f", "męska" = "m" }'),
    File("letters of Turkey", swap((",f,", ",kadın,"), (",m,", ",eş,")).encode("cp1254"), "its bytes look like cp1254", 'encoding = "cp1254"\n[columns.sex]\nrecode = { "kadın" = "f", "eş" = "m" }'),
    File("an Arabic decimal mark", swap(("200.5", "٢٠٠٫٥"))),
    *(File(f"a dash or blank for minus as {one}", swap(("200.5", one)), "brackets or a dash for it") for one in ("–200.5", "- 200.5")),
    File("apostrophes in front", swap(("61", "'61"), ("57", "'57"), ("73", "'73")), "begin with an equals sign or an apostrophe"),
    File("several units", swap(("200.5", "200.5 mg/dl"), ("NA", "5.2 mmol/l")), "several units or remarks beside the numbers: bring all values to one unit"),
    File("ages as pictures of hospitals have them", swap(("61", "061Y"), ("57", "006M"), ("73", "073Y")), "several units or remarks"),
    File("thousands with blanks and a decimal comma", swap(("1180.25", '"1 180,25"'), ("200.5", '"200,5"')), 'state decimal = "," and thousands = " "', 'decimal = ","\nthousands = " "'),
    File("nothing but a mark", "\ufeff\n", "is empty: give the table with its rows"),
]  # fmt: skip
