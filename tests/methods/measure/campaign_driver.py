"""A campaign of quick cases in a process of its own, to be killed: `campaign_driver.py STORE ENGINE CASES LOG`."""

from __future__ import annotations

import sys

from measure_cases import python_case

from oomcast.methods.measure import Conditions, Limits, Store, engines, run_campaign

CASE = """
import os
log = os.open({log!r}, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
os.write(log, b"{number}\\n")
held = bytearray({number} << 12)
"""


def quick_cases(count: int, log: str) -> list:
    return [python_case(CASE.format(log=log, number=number), number) for number in range(count)]


def main() -> None:
    where, engine, count, log = sys.argv[1:]
    chosen = engines.LocalEngine(workers=2) if engine == "local" else engines.RayEngine(engine)
    with Store.open(where) as store:
        conditions = Conditions(Limits(seconds=60, bytes=256 << 20))
        run_campaign(quick_cases(int(count), log), store, chosen, conditions=conditions)


if __name__ == "__main__":
    main()
