"""`python -m benchmarks.fallback`: how often `choose_fallback` chooses another policy than the first.

Four policies answer documents at random, so that their true accuracies are known. The later ones differ from
the first on a share of the documents. In the first column of the printed table, each of them is as good as
the first policy, and in the second a point worse. In the last two columns the second policy alone is better,
by three and by six points.
"""

from __future__ import annotations

import numpy as np

from rlfocal.methods.fallback import choose_fallback

N_DRAWS = 2_000
POLICY_NAMES = ("first", "second", "third", "fourth")


def share_of_changes(gains: tuple[float, ...], n: int, differ: float, draws: int = N_DRAWS) -> float:
    """The share of draws of n held-out documents after which another policy than the first is chosen.
    `gains`: each policy's accuracy above the first's. `differ`: the share of documents on which a later one
    differs from it."""
    rng = np.random.default_rng(0)
    changes = 0
    for _ in range(draws):
        earned = np.zeros((len(gains), n))
        for policy, gain in enumerate(gains[1:], 1):
            chances = [(differ - gain) / 2, 1 - differ, (differ + gain) / 2]
            earned[policy] = rng.choice([-1.0, 0.0, 1.0], size=n, p=chances)
        changes += choose_fallback(POLICY_NAMES, earned) != POLICY_NAMES[0]
    return changes / draws


def main() -> None:
    """Prints the table of shares in %, by number of documents and by share on which policies differ."""
    print("documents  differ  no better  a point worse  3 better  6 better")
    for n in (20, 80, 300, 1_000, 4_000):
        for differ in (0.1, 0.2, 0.4):
            truths = ((0.0,) * 4, (0.0, -0.01, -0.01, -0.01), (0.0, 0.03, 0.0, 0.0), (0.0, 0.06, 0.0, 0.0))
            shares = [100 * share_of_changes(gains, n, differ) for gains in truths]
            print(f"{n:9d}  {differ:6.0%}" + "".join(f"{share:11.1f}" for share in shares))


if __name__ == "__main__":
    main()
