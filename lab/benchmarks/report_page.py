"""How large a report's page is, and how long a real browser takes to open it.

    python -m lab bench report_page PAGE.html [--times 5]

Needs playwright, and Chromium. Prints for each opening the milliseconds until the page is loaded and drawn (its script
done, first frame painted), and those of the processor that the page's own thread took for it, which other work on the
machine does not lengthen as much.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from .browser import DESKTOP, PAINTED, chromium


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", type=Path)
    parser.add_argument("--times", type=int, default=5)
    options = parser.parse_args()
    print(f"{options.page.stat().st_size / 1e6:.2f} MB")
    with chromium() as browser:
        for _ in range(options.times):
            page = browser.new_page(viewport=DESKTOP)
            session = page.context.new_cdp_session(page)
            session.send("Performance.enable", {"timeDomain": "threadTicks"})
            page.goto(options.page.resolve().as_uri())
            painted = page.evaluate(PAINTED)
            told = {entry["name"]: entry["value"] for entry in session.send("Performance.getMetrics")["metrics"]}
            parts = ("Task", "Script", "Layout", "RecalcStyle")
            spent = ", ".join(f"{part} {1000 * told[f'{part}Duration']:.0f}" for part in parts)
            print(f"{painted:.0f} ms to the first frame; ms of the processor: {spent}")
            page.close()


if __name__ == "__main__":
    main()
