"""Findings about wgmma's accumulators, from the run-time's table to race records."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from course_lib.virtual_gpu.races import RawAccess, RawRace
from course_lib.virtual_gpu.records import (
    ACC_BLOCK,
    ACC_COUNT,
    ACC_EARLY,
    ACC_FIRST_SITE,
    ACC_GROUP,
    ACC_KIND,
    ACC_SITE,
    ACC_THREAD,
    K_ACCUMULATORS_COUNT,
)


def collect_accumulators(tables: Iterable[tuple[np.ndarray, np.ndarray]]) -> list[RawRace]:
    """Races in registers, of (core record, table) pairs; one for each kind and pair of sites.

    missing="group": an accumulator used before the wait for its wgmma, which `first` names.
    missing="fence": one that a wgmma takes after it was read or changed, without wgmma.fence.
    Registers have no place in shared memory: offset and bytes are 0.
    """
    found: dict[tuple[str, int, int], RawRace] = {}
    for core, table in tables:
        for entry in table[: int(core[K_ACCUMULATORS_COUNT])]:
            race = _race(entry)
            key = (race.missing, race.first.site, race.second.site)
            other = found.get(key)
            if other is not None:
                kept = min(race, other, key=lambda r: r.block)
                race = RawRace(
                    kept.block, 0, 0, kept.first, kept.second, kept.missing,
                    race.count + other.count,
                )  # fmt: skip
            found[key] = race
    return sorted(found.values(), key=lambda r: (r.block, r.first.site, r.second.site))


def _race(entry: np.ndarray) -> RawRace:
    thread, site = int(entry[ACC_THREAD]), int(entry[ACC_SITE])
    early = entry[ACC_KIND] == ACC_EARLY
    first_site = int(entry[ACC_FIRST_SITE]) if early else site
    group = int(entry[ACC_GROUP])
    first = RawAccess(thread, thread // 32, first_site, "accumulator", None, group)
    second = RawAccess(thread, thread // 32, site, "accumulator", None, None if early else group)
    missing = "group" if early else "fence"
    return RawRace(int(entry[ACC_BLOCK]), 0, 0, first, second, missing, int(entry[ACC_COUNT]))
