"""What a load did, counted."""

from dataclasses import dataclass, field


@dataclass
class Count:
    """Records of one kind."""

    created: int = 0
    updated: int = 0
    unchanged: int = 0


@dataclass
class LoadSummary:
    """Counts by kind: companies, accounts, applications, connectors, devices, venues, tags,
    beacons, geofences, campaigns."""

    counts: dict[str, Count] = field(default_factory=dict)

    def of(self, kind: str) -> Count:
        """The count of a kind, to read or to add to."""
        return self.counts.setdefault(kind, Count())

    @property
    def changed(self) -> bool:
        """Whether anything was created or updated."""
        return any(count.created or count.updated for count in self.counts.values())

    def lines(self) -> list[str]:
        """A line per kind, for people."""
        return [
            f"{kind}: {count.created} created, {count.updated} updated, {count.unchanged} unchanged"
            for kind, count in self.counts.items()
        ]
