# SPDX-License-Identifier: Apache-2.0
"""Tables of figures: shown as they come, and kept for JSON."""
import math


def percentile(values, percent):
    """By the nearest rank: a value that was measured."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def median(values):
    return percentile(values, 50)


def slope(points):
    """Of the line of least squares through (x, y)."""
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread else 0.0


def text_of(value):
    if value is None:
        return ""
    return f"{value:.2f}" if isinstance(value, float) else str(value)


class Report:
    def __init__(self, machine):
        self.figures = {"machine": machine}
        for name, value in machine.items():
            print(f"{name + ':':12}{value}")

    def table(self, key, title, columns, rows):
        """rows are lists, the first column of each its name."""
        self.figures[key] = {"title": title, "columns": columns, "rows": rows}
        cells = [columns, *([text_of(value) for value in row] for row in rows)]
        widths = [max(len(row[i]) for row in cells) for i in range(len(columns))]
        print(f"\n{title}")
        for row in cells:
            print("  ".join([row[0].ljust(widths[0]), *(v.rjust(w) for v, w in zip(row[1:], widths[1:]))]).rstrip())
        print(end="", flush=True)

    def latencies(self, key, title, rows):
        """rows: (name, nanoseconds of each, name of the row that it is compared with or None)."""
        medians = {name: median(values) / 1e6 for name, values, _ in rows}
        self.table(key, title, ["ms", "n", "min", "median", "p99", "max", "more", "ratio"], [
            [name, len(values), min(values) / 1e6, medians[name], percentile(values, 99) / 1e6, max(values) / 1e6,
             medians[name] - medians[to] if to else None, medians[name] / medians[to] if to else None]
            for name, values, to in rows])
