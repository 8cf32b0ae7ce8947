"""A learner that drives a drive: how many requests should be inside at once?

More of them give more throughput, up to where the drive is full, and longer latencies. The
learner, epsilon-greedy, knows nothing of the drive. It tries a depth, is paid for what was read
and fined for what took longer than the limit, and takes what has paid best so far; now and then
another, by chance.
"""

import numpy as np

import ssdkit

DEPTHS = (1, 2, 4, 8, 16, 32, 64, 128)
LIMIT_NS = 250_000


def reward(done: ssdkit.Completions) -> float:
    """Thousands of reads a second of those within the limit, less ten times those that were not."""
    seconds = float(done.completed.max() - done.submitted.min()) / 1e9
    good = int((done.latency <= LIMIT_NS).sum())
    return (good - 10 * (len(done) - good)) / seconds / 1000


def main(rounds: int = 300, epsilon: float = 0.15) -> tuple[int, dict[int, float]]:
    """The depth that was found best, and what each paid in the mean."""
    drive = ssdkit.Drive("mem:tlc", size="128M", store="none")
    blocks, rng = drive.size // 4096, np.random.default_rng(1)
    drive.run("write", np.arange(blocks // 16) * 65536, 65536, qd=32)
    paid, tries = np.zeros(len(DEPTHS)), np.zeros(len(DEPTHS), int)
    for turn in range(rounds):
        explores = turn < len(DEPTHS) or rng.random() < epsilon
        which = turn % len(DEPTHS) if explores else int(np.argmax(paid))
        done = drive.run("read", rng.integers(0, blocks, 500) * 4096, qd=DEPTHS[which])
        tries[which] += 1
        paid[which] += (reward(done) - paid[which]) / tries[which]
    best = DEPTHS[int(np.argmax(paid))]
    for depth, mean, count in zip(DEPTHS, paid, tries, strict=True):
        print(f"qd={depth:<4} {mean:8.1f}  tried {count}{'  <-' if depth == best else ''}")
    return best, dict(zip(DEPTHS, paid.tolist(), strict=True))


if __name__ == "__main__":
    main()
