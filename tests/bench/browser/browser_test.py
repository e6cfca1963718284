#!/usr/bin/env python3
"""Shows figures and a report in Chromium, and looks where their texts come to lie.

    browser_test.py PICTURES       PICTURES FOLDER writes FOLDER/*.svg and FOLDER/{report,plan,devices}.html

No text may cover another or leave its picture, and the browser may have nothing to complain of, in light and in dark.
"""

import json
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from html import unescape
from pathlib import Path

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
MODES = {"dark": "0", "light": "1"}
# Boxes of lines are higher than their letters, so they may touch by this many pixels.
WIDTH_SLACK, HEIGHT_SLACK = 0.5, 2.5

MEASURE = """
<script>
const pictures = [...document.querySelectorAll("svg")].map(svg => {
  const box = element => { const b = element.getBoundingClientRect(); return [b.left, b.top, b.right, b.bottom]; };
  const texts = [...svg.querySelectorAll("text")];
  return {box: box(svg), texts: texts.map(t => ({text: t.textContent, box: box(t), fill: getComputedStyle(t).fill}))};
});
document.documentElement.innerHTML = "<body><pre id=measured></pre></body>";
document.getElementById("measured").textContent = JSON.stringify(pictures);
</script>"""


OVERFLOW = """
<script>
const beyond = element => element.scrollWidth - element.clientWidth;
const figures = [...document.querySelectorAll(".figure")];
const measured = {page: beyond(document.documentElement), figures: figures.map(beyond),
  tables: [...document.querySelectorAll(".table")].map(beyond),
  scroll: figures.every(figure => getComputedStyle(figure).overflowX == "auto")};
document.documentElement.innerHTML = "<body><pre id=measured></pre></body>";
document.getElementById("measured").textContent = JSON.stringify(measured);
</script>"""


def chromium(page, mode="light", width=900):
    """Loads a page; gives the document as it then is, and what the console was told."""
    with tempfile.TemporaryDirectory() as profile:
        command = [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", f"--user-data-dir={profile}"]
        command += [f"--blink-settings=preferredColorScheme={MODES[mode]}", f"--window-size={width},1200", "--enable-logging=stderr"]
        done = subprocess.run([*command, "--dump-dom", f"file://{page}"], capture_output=True, text=True, timeout=240, check=True)
    # Chromium's own pages complain, too, as of a network that is not there.
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line and "source: chrome://" not in line]


def measured(folder, svgs, mode):
    page = folder / "measure.html"
    page.write_text("<!doctype html><meta charset=utf-8><body>" + "".join(f"<div>{svg}</div>" for svg in svgs) + MEASURE)
    document, complaints = chromium(page, mode)
    assert not complaints, complaints
    return json.loads(unescape(re.search(r'<pre id="measured">(.*?)</pre>', document, re.DOTALL).group(1)))


def outside(picture):
    left, top, right, bottom = picture["box"]
    return [text["text"] for text in picture["texts"]
            if text["box"][0] < left - WIDTH_SLACK or text["box"][2] > right + WIDTH_SLACK
            or text["box"][1] < top - WIDTH_SLACK or text["box"][3] > bottom + WIDTH_SLACK]


def cover(one, other):
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    return width > WIDTH_SLACK and height > HEIGHT_SLACK


def covered(picture):
    texts = picture["texts"]
    return [(one["text"], other["text"]) for number, one in enumerate(texts) for other in texts[number + 1:]
            if cover(one["box"], other["box"])]


class Browser(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if CHROMIUM is None:
            raise AssertionError("this test shows figures in a browser: install Debian's packages chromium and fonts-dejavu-core")
        cls.holder = tempfile.TemporaryDirectory()
        cls.folder = Path(cls.holder.name)
        subprocess.run([PICTURES, cls.holder.name], check=True)

    @classmethod
    def tearDownClass(cls):
        cls.holder.cleanup()

    def test_no_text_covers_another_or_leaves_its_picture(self):
        files = sorted(self.folder.glob("*.svg"))
        self.assertGreater(len(files), 10)
        for mode in MODES:
            pictures = measured(self.folder, [file.read_text() for file in files], mode)
            self.assertEqual(len(pictures), len(files))
            for file, picture in zip(files, pictures):
                with self.subTest(figure=file.name, mode=mode):
                    self.assertGreater(len(picture["texts"]), 2)
                    self.assertTrue(all(text["box"][2] > text["box"][0] for text in picture["texts"]), "no font")
                    self.assertEqual(outside(picture), [])
                    self.assertEqual(covered(picture), [])

    def test_text_has_another_colour_in_the_dark(self):
        svg = (self.folder / "lines.svg").read_text()
        fills = {mode: measured(self.folder, [svg], mode)[0]["texts"][0]["fill"] for mode in MODES}
        self.assertNotEqual(fills["dark"], fills["light"])

    def test_the_report_is_shown_without_complaint(self):
        for mode in MODES:
            document, complaints = chromium(self.folder / "report.html", mode)
            self.assertEqual(complaints, [])
            self.assertIn("DDP paid", document)
            self.assertIn("oversubscribed", document)
            self.assertEqual(document.count("<svg"), len(list(self.folder.glob("*.svg"))))

    def overflow(self, name, width):
        """Gives by how many pixels a page, its figures and its tables exceed their places in a window so wide."""
        report = re.sub(r'<meta http-equiv="Content-Security-Policy".*?>', "", (self.folder / name).read_text())
        page = self.folder / "overflow.html"
        page.write_text(report + OVERFLOW)
        document, complaints = chromium(page, width=width)
        self.assertEqual(complaints, [])
        return json.loads(re.search(r'<pre id="measured">(.*?)</pre>', document, re.DOTALL).group(1))

    def test_plans_are_whole_on_wide_screens_and_scroll_on_narrow_ones(self):
        for name in ("plan.html", "devices.html"):
            page = (self.folder / name).read_text()
            wide, narrow = self.overflow(name, 1200), self.overflow(name, 400)
            self.assertEqual(len(wide["tables"]), page.count("<table "))
            self.assertEqual(wide["page"], 0)
            self.assertEqual(set(wide["tables"] + wide["figures"]), {0}, "pixels that lie outside of a table's place")
            self.assertEqual(narrow["page"], 0, "what is too wide scrolls in its own place")
            self.assertGreater(max(narrow["tables"]), 0, "what is too wide is seen")

    def test_figures_are_whole_on_wide_screens_and_scroll_on_narrow_ones(self):
        for width in (1200, 400):
            seen = self.overflow("report.html", width)
            self.assertGreater(len(seen["figures"]), 10)
            self.assertEqual(seen["page"], 0, f"pixels that lie outside of the page at a width of {width}")
            self.assertTrue(seen["scroll"])
            if width == 1200:
                self.assertEqual(set(seen["figures"]), {0}, "pixels that lie outside of a figure's place")
            else:
                self.assertGreater(min(seen["figures"]), 0, "a figure that shrinks to nothing readable")

    def test_what_this_test_looks_for_is_seen(self):
        text = '<text x="{}" y="50" font-size="20">some text</text>'
        bad = '<svg xmlns="http://www.w3.org/2000/svg" width="200" height="100">' + text.format(10) + text.format(30) + text.format(180) + "</svg>"
        picture = measured(self.folder, [bad], "light")[0]
        self.assertEqual(len(covered(picture)), 1)
        self.assertEqual(outside(picture), ["some text"])
        page = self.folder / "complains.html"
        page.write_text("<!doctype html><script>undefined.field</script>")
        self.assertEqual(len(chromium(page)[1]), 1)


if __name__ == "__main__":
    PICTURES = sys.argv.pop()
    unittest.main()
