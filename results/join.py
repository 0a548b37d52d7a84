"""Takes files of `bayesin reproduce NAME --scale paper` into results/numbers, beside what was measured before.

    python results/join.py reproduced/table1-paper/table1.json …

A task that is done in the new file replaces an older one; a task that is not stays as it was measured, and then says
at which commit and on which device. Tasks that the figure no longer has are dropped. Seconds add up where anything
stays, those of replaced tasks too. `summary.py` judges and draws.
"""

import sys
from pathlib import Path

from bayesin.files import write_bytes
from bayesin.lab.papers import as_text, read_reproduction

NUMBERS = Path(__file__).parent / "numbers"


def main(paths: list[str]) -> None:
    for path in paths:
        new = read_reproduction(path)
        place = NUMBERS / f"{new['name']}.json"
        joined = join(read_reproduction(place), new) if place.exists() else new
        write_bytes(place, as_text(joined).encode())


def join(old: dict, new: dict) -> dict:
    """The new result, with what only the old one has done."""
    if new["scale"] != old["scale"] or new["written"] == old["written"]:
        raise SystemExit(f"{new['name']}: it is of another scale, or joined already")
    origin = {"commit": str(old["provenance"]["commit"])[:10], "device": ", ".join(old["devices"])}
    before = {record["name"]: origin | record for record in old["records"] if record["state"] == "done"}
    records = [r if r["state"] == "done" else before.get(r["name"], r) for r in new["records"]]
    kept = any(record["state"] != "done" and record["name"] in before for record in new["records"])
    return new | {
        "records": records,
        "remarks": old.get("remarks", []),
        "devices": sorted({*new["devices"], *(old["devices"] if kept else [])}),
        "compute_seconds": new["compute_seconds"] + (old["compute_seconds"] if kept else 0.0),
    }


if __name__ == "__main__":
    main(sys.argv[1:])
