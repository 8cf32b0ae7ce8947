"""A cache in front of a drive: the least recently used blocks, written through.

Reads of what it holds take no drive time; all others go to the drive, many at a time.
"""

from collections import OrderedDict

import numpy as np

import ssdkit


class Cache:
    """Keeps so many blocks of 4 KiB of a drive."""

    def __init__(self, drive: ssdkit.Drive, blocks: int) -> None:
        self.drive, self.blocks = drive, blocks
        self.held: OrderedDict[int, None] = OrderedDict()
        self.hits = self.asked = 0

    def read(self, blocks: list[int]) -> int:
        """Reads blocks; gives the ns that the last took."""
        missing = []
        for block in blocks:
            self.asked += 1
            if block in self.held:
                self.hits += 1
            else:
                missing.append(block)
            self._use(block)
        return self._ask("read", missing)

    def write(self, blocks: list[int]) -> int:
        """Writes blocks through; gives the ns that the last took."""
        for block in blocks:
            self._use(block)
        return self._ask("write", blocks)

    def _use(self, block: int) -> None:
        self.held[block] = None
        self.held.move_to_end(block)
        if len(self.held) > self.blocks:
            self.held.popitem(last=False)

    def _ask(self, op: str, blocks: list[int]) -> int:
        if not blocks:
            return 0
        before = self.drive.now
        self.drive.run(op, np.array(blocks) * 4096)
        return self.drive.now - before


def main() -> dict[int, tuple[float, int]]:
    """Hit rate and ns a batch of reads, for caches of three sizes."""
    results = {}
    for size in (1, 1024, 8192):
        cache = Cache(ssdkit.Drive("mem:tlc", size="128M", store="none", qd=32), size)
        rng = np.random.default_rng(1)
        cache.write(list(range(cache.drive.size // 4096)))
        took = [cache.read((rng.zipf(1.2, 32) % 32768).tolist()) for _ in range(500)]
        results[size] = (cache.hits / cache.asked, round(sum(took) / len(took)))
        rate, mean = results[size]
        print(f"{size:5} blocks: {rate:4.0%} of reads hit, {mean / 1000:4.0f} us for 32")
    return results


if __name__ == "__main__":
    main()
