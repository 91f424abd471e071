"""Profile view for a terminal: cost of each entry of the table, the most expensive first."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from hlo_dispatch.driver.profile import Profile
from hlo_dispatch.report.terminal import make_table, row
from hlo_dispatch.report.wording import duration


def print_profile(target: Console, profile: Profile) -> None:
    """Print one row for each entry that was tried, with where it is written."""
    table = make_table("kind", "name", "hits", "tries", "time", "when it hit", "written at")
    for column in table.columns[2:6]:
        column.justify = "right"
        column.no_wrap = True
    tallies = sorted(profile.tallies.values(), key=lambda tally: -tally.seconds)
    for tally in tallies:
        times = [duration(seconds) if seconds else "" for seconds in (tally.seconds, tally.hit_seconds)]
        row(table, tally.kind, tally.name, f"{tally.hits:,}", f"{tally.tries:,}", *times, tally.place)
    target.print(table)
    untried = profile.untried()
    if untried:
        target.print(Text(f"never tried: {len(untried)} of the table's {len(profile.places)} entries"))
