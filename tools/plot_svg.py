# SPDX-FileCopyrightText: The ringbell authors
# SPDX-License-Identifier: Apache-2.0
"""A picture of time over bytes, both axes logarithmic, as SVG text. Pure: the same input gives the same bytes.

Series differ in colour, dash and marker, so that no one of them has to be seen. No script, no font file, no outside link.
"""
import math
import textwrap
from xml.sax.saxutils import escape

from plot_series import size_text, time_range

WIDTH = 800
LEFT, RIGHT = 66, 26
PLOT_HEIGHT = 370
TEXT = 13  # px; other sizes follow from it
# Mean advance of a sans-serif letter, in em, on the large side: text is laid out without knowing the font.
ADVANCE = 0.56

THEMES = {
    "light": {"back": "#ffffff", "text": "#1f2328", "soft": "#59636e", "grid": "#d8dee4", "fine": "#eef1f4", "band": "#e7ebef",
              "lines": ["#0a5fb4", "#c2410c", "#0f7b5a", "#9d3a85", "#7a5c00", "#0e7490", "#b4232f", "#57606a"]},
    "dark": {"back": "#0d1117", "text": "#e6edf3", "soft": "#9198a1", "grid": "#30363d", "fine": "#1a2028", "band": "#21272f",
             "lines": ["#58a6ff", "#ff9457", "#3fcf9b", "#f08bd0", "#e3b341", "#4dd0e6", "#ff7b80", "#b1bac4"]},
}
DASHES = ["", "7 4", "2 3.5", "11 4 2 4", "15 5", "5 2 1.5 2 1.5 2", "1.5 5"]
# Around (0, 0); the last is filled like the others: open shapes vanish at small sizes.
MARKERS = [
    "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z",        # circle
    "M-3.7-3.7h7.4v7.4h-7.4z",                    # square
    "M0-4.9L4.6 3.3H-4.6z",                       # triangle up
    "M0-5.1L4.6 0L0 5.1L-4.6 0z",                 # diamond
    "M0 4.9L4.6-3.3H-4.6z",                       # triangle down
    "M-1.5-4.5h3v3h3v3h-3v3h-3v-3h-3v-3h3z",      # plus
    "M0-4.7L4.5-1.4L2.8 3.8H-2.8L-4.5-1.4z",      # pentagon
    "M-4.4-4.4L0-1.8L4.4-4.4L1.8 0L4.4 4.4L0 1.8L-4.4 4.4L-1.8 0z",  # cross
    "M-5-2.4h10v4.8h-10z",                        # bar
]


def number(value):
    """Short and the same everywhere: one decimal, none if it is 0."""
    text = f"{value:.1f}"
    return text.removesuffix(".0")


def byte_ticks(low, high, most=10):
    """Exponents of two: (all from low to high, those with a label)."""
    first, last = math.floor(math.log2(low)), math.ceil(math.log2(high))
    if first == last:
        last += 1
    step = next(step for step in range(1, 64) if (last - first) // step + 1 <= most)
    named = list(range(first, last + 1, step))
    if (last - named[-1]) * 2 > step:  # the end is worth a label where there is room
        named.append(last)
    return list(range(first, last + 1)), named


def time_ticks(low, high, most=13):
    """1-2-5 values, the first at or below low, the last at or above high: (all, those with a label)."""
    values = [digit * 10.0**exponent for exponent in range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1)
              for digit in (1, 2, 5)]
    # A hair of tolerance: 5e-1 computed as 0.5000000001 must not cost a whole step.
    begin = max(index for index, value in enumerate(values) if value <= low * 1.000001)
    end = min(index for index, value in enumerate(values) if value >= high * 0.999999)
    if begin == end:
        end += 1
    ticks = values[begin:end + 1]
    labelled = ticks if len(ticks) <= most else [value for value in ticks if f"{value:e}".startswith("1.0")]
    return ticks, labelled


def time_label(value):
    return f"{value:.0f}" if value >= 1 else f"{value:.6f}".rstrip("0")


def wrapped(text, size):
    return textwrap.wrap(text, int((WIDTH - LEFT - RIGHT + 30) / (size * ADVANCE))) if text else []


def legend_columns(labels):
    """(columns, width of one)"""
    width = 46 + math.ceil(max(len(label) for label in labels) * TEXT * ADVANCE) + 14
    columns = max(1, min(len(labels), (WIDTH - LEFT - RIGHT) // width))
    return columns, width


def picture(series, title, subtitle, notes, floor=None, theme="light"):
    """@param series pairs of label and sorted [(bytes, us)], all above 0  @param floor least and greatest us of an empty call
    """
    colours = THEMES[theme]
    points = [point for _, line in series for point in line]
    values = [us for _, us in points] + list(floor or [])
    x_all, x_named = byte_ticks(min(size for size, _ in points), max(size for size, _ in points))
    y_all, y_named = time_ticks(min(values), max(values))

    def style(index):
        return (colours["lines"][index % len(colours["lines"])], DASHES[index % len(DASHES)], index % len(MARKERS))

    out = []
    y = 32
    out.append(f'<text x="{LEFT - 36}" y="{y}" font-size="18" font-weight="600" fill="{colours["text"]}">{escape(title)}</text>')
    for line in wrapped(subtitle, TEXT):
        y += 19
        out.append(f'<text x="{LEFT - 36}" y="{y}" fill="{colours["soft"]}">{escape(line)}</text>')
    columns, width = legend_columns([label for label, _ in series])
    y += 8
    for index, (label, _) in enumerate(series):
        colour, dash, marker = style(index)
        x = LEFT + (index % columns) * width
        if index % columns == 0:
            y += 21
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        out.append(f'<path d="M{x} {y - 4}h34" stroke="{colour}" stroke-width="2.2"{dashes}/>'
                   f'<path d="{MARKERS[marker]}" transform="translate({x + 17} {y - 4})" fill="{colour}" stroke="{colours["back"]}"/>'
                   f'<text x="{x + 43}" y="{y}" fill="{colours["text"]}">{escape(label)}</text>')
    top = y + 20
    bottom = top + PLOT_HEIGHT

    def x_of(size):
        return LEFT + (math.log2(size) - x_all[0]) / (x_all[-1] - x_all[0]) * (WIDTH - LEFT - RIGHT)

    def y_of(us):
        return bottom - math.log(us / y_all[0]) / math.log(y_all[-1] / y_all[0]) * PLOT_HEIGHT

    fine = "".join(f"M{number(x_of(2**power))} {top}V{bottom}" for power in x_all if power not in x_named)
    fine += "".join(f"M{LEFT} {number(y_of(us))}H{WIDTH - RIGHT}" for us in y_all if us not in y_named)
    strong = "".join(f"M{number(x_of(2**power))} {top}V{bottom}" for power in x_named)
    strong += "".join(f"M{LEFT} {number(y_of(us))}H{WIDTH - RIGHT}" for us in y_named)
    out.append(f'<path d="{fine}" stroke="{colours["fine"]}"/>' if fine else "")
    out.append(f'<path d="{strong}" stroke="{colours["grid"]}"/>')
    if floor:
        upper = min(y_of(floor[1]), y_of(floor[0]) - 2)
        text = time_range(*floor)
        out.append(f'<path d="M{LEFT} {number(upper)}H{WIDTH - RIGHT}V{number(y_of(floor[0]))}H{LEFT}z" fill="{colours["band"]}"/>'
                   f'<path d="M{LEFT} {number(upper)}H{WIDTH - RIGHT}M{LEFT} {number(y_of(floor[0]))}H{WIDTH - RIGHT}" '
                   f'stroke="{colours["soft"]}" stroke-width="0.7"/>'
                   f'<text x="{WIDTH - RIGHT - 6}" y="{number(upper - 6)}" font-size="12" text-anchor="end" fill="{colours["soft"]}">'
                   f'empty call: {text} \u00b5s</text>')
    out.append(f'<path d="M{LEFT} {top}V{bottom}H{WIDTH - RIGHT}" stroke="{colours["soft"]}"/>')
    out.append(f'<g fill="{colours["soft"]}" text-anchor="middle">' +
               "".join(f'<text x="{number(x_of(2**power))}" y="{bottom + 19}">{size_text(2**power) if power >= 0 else ""}</text>'
                       for power in x_named) + "</g>")
    out.append(f'<g fill="{colours["soft"]}" text-anchor="end">' +
               "".join(f'<text x="{LEFT - 8}" y="{number(y_of(us) + 4.5)}">{time_label(us)}</text>' for us in y_named) + "</g>")
    middle = number((LEFT + WIDTH - RIGHT) / 2)
    out.append(f'<text x="{middle}" y="{bottom + 41}" text-anchor="middle" fill="{colours["text"]}">message, bytes</text>')
    out.append(f'<text transform="translate(17 {number(top + PLOT_HEIGHT / 2)}) rotate(-90)" text-anchor="middle" '
               f'fill="{colours["text"]}">time, \u00b5s: p50 of the slowest rank</text>')
    for index, (_, line) in enumerate(series):  # dashes over the solid first: where two meet both can be seen
        colour, dash, marker = style(index)
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        path = " ".join(f"{number(x_of(size))},{number(y_of(us))}" for size, us in line)
        marks = "".join(f' marker-{where}="url(#m{index})"' for where in ("start", "mid", "end"))
        # A line alone would not show a series with one point; its marker does.
        path = f"{path} {path}" if len(line) == 1 else path
        out.append(f'<marker id="m{index}" viewBox="-6 -6 12 12" markerWidth="12" markerHeight="12" markerUnits="userSpaceOnUse">'
                   f'<path d="{MARKERS[marker]}" fill="{colour}" stroke="{colours["back"]}"/></marker>'
                   f'<polyline points="{path}" stroke="{colour}" stroke-width="2.2" stroke-linejoin="round"{dashes}{marks}/>')
    y = bottom + 48
    for line in wrapped(notes, 12):
        y += 17
        out.append(f'<text x="{LEFT - 36}" y="{y}" font-size="12" fill="{colours["soft"]}">{escape(line)}</text>')
    height = y + 18
    body = "\n".join(part for part in out if part)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" role="img" '
            f'aria-labelledby="title desc" font-family="sans-serif" font-size="{TEXT}" fill="none">\n'
            f'<title id="title">{escape(title)}</title>\n<desc id="desc">{escape(description(series, subtitle))}</desc>\n'
            f'<rect width="{WIDTH}" height="{height}" fill="{colours["back"]}"/>\n{body}\n</svg>\n')


def description(series, subtitle):
    """For who hears the picture: where each line begins and ends."""
    lines = [f"{label}: {line[0][1]:.1f} \u00b5s at {size_text(line[0][0])} bytes, {line[-1][1]:.1f} \u00b5s at "
             f"{size_text(line[-1][0])} bytes" for label, line in series]
    return f"{subtitle}. " + "; ".join(lines) + "."
