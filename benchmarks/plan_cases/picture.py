"""A scatter plot of predicted over measured steps."""

import math

SIZE, EDGE, LEGEND, LABELS = 480, 48, 150, 32
COLOURS = {"serial": "#222222", "dp": "#0072b2", "ddp": "#009e73", "mp": "#d55e00", "pp": "#cc79a7", "ddp between hosts": "#e69f00"}


def label_of(case):
    return "ddp between hosts" if "link" in case else case["way"]


class Axes:
    """Both in logarithmic milliseconds, over whole decades."""

    def __init__(self, cases):
        values = [math.log10(1e3 * case[key]) for case in cases for key in ("predicted", "measured")]
        self.least, self.most = math.floor(min(values)), math.ceil(max(values))

    def along(self, value):
        return EDGE + (value - self.least) / (self.most - self.least) * (SIZE - 2 * EDGE)

    def x(self, value):
        return round(self.along(value), 1)

    def y(self, value):
        return round(SIZE - self.along(value), 1)


def lines(axes):
    """Where a prediction is right, and where it is 20 % off."""
    for factor, dash in ((1, ""), (1.2, ' stroke-dasharray="4 4"'), (1 / 1.2, ' stroke-dasharray="4 4"')):
        ends = [(axes.least, axes.least + math.log10(factor)), (axes.most, axes.most + math.log10(factor))]
        (x1, y1), (x2, y2) = [(axes.x(x), axes.y(y)) for x, y in ends]
        yield f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="#999999"{dash}/>'


def texts(axes):
    for decade in range(axes.least, axes.most + 1):
        yield f'<text x="{axes.x(decade)}" y="{SIZE - EDGE + 18}" text-anchor="middle">{10 ** decade:g}</text>'
        yield f'<text x="{EDGE - 6}" y="{axes.y(decade) + 4}" text-anchor="end">{10 ** decade:g}</text>'
    yield f'<text x="{SIZE / 2}" y="{SIZE - 8}" text-anchor="middle">measured step [ms]; dashed: 20 % off</text>'
    yield f'<text x="{-LABELS / 2}" y="{SIZE / 2}" text-anchor="middle" transform="rotate(-90 {-LABELS / 2} {SIZE / 2})">predicted step [ms]</text>'


def marks(axes, cases):
    for case in cases:
        x, y = axes.x(math.log10(1e3 * case["measured"])), axes.y(math.log10(1e3 * case["predicted"]))
        yield f'<circle cx="{x}" cy="{y}" r="3.5" fill="{COLOURS[label_of(case)]}" fill-opacity="0.75"/>'


def legend(cases):
    there = {label_of(case) for case in cases}
    for index, (way, colour) in enumerate((way, colour) for way, colour in COLOURS.items() if way in there):
        yield f'<circle cx="{SIZE - 20}" cy="{EDGE + 20 * index}" r="4" fill="{colour}"/>'
        yield f'<text x="{SIZE - 10}" y="{EDGE + 20 * index + 4}">{way}</text>'


def scatter(cases):
    """Returns an SVG."""
    axes, width = Axes(cases), SIZE + LEGEND + LABELS
    begin = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-{LABELS} 0 {width} {SIZE}" font-family="sans-serif" font-size="12">'
    parts = [*lines(axes), *texts(axes), *marks(axes, cases), *legend(cases)]
    return "\n".join([begin, f'<rect x="-{LABELS}" width="{width}" height="{SIZE}" fill="white"/>', *parts, "</svg>\n"])
