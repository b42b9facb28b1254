"""Trees whose tips were sampled through time, with dates that are known, for tests of dating."""

import numpy as np

from mltree.tree.clades import WrittenTree


def serial_coalescent(rng, n, span=1.0):
    """Parents, dates and labels of a coalescent tree; tips are dated over ``span`` units."""
    ages = np.sort(rng.uniform(0.0, span, n))
    ages[0] = 0.0
    age, children = dict(enumerate(ages)), {}
    alive, sampled, now = [0], 1, 0.0
    while len(alive) > 1 or sampled < n:
        pairs = len(alive) * (len(alive) - 1) / 2
        wait = rng.exponential(1.0 / pairs) if pairs else np.inf
        if sampled < n and now + wait > ages[sampled]:
            now = ages[sampled]
            alive.append(sampled)
            sampled += 1
            continue
        now += wait
        pair = [alive.pop(rng.integers(len(alive))) for _ in range(2)]
        node = n + len(children)
        children[node], age[node] = pair, now
        alive.append(node)
    order, parents, pending = [], [], [(alive[0], -1)]
    while pending:
        node, parent = pending.pop()
        pending += [(child, len(order)) for child in children.get(node, ())]
        order.append(node)
        parents.append(parent)
    dates = np.array([-age[node] for node in order])
    return np.array(parents, np.int32), dates, [f"t{x}" if x < n else "" for x in order]


def simulated(seed, n, variation=0.0, sites=1000, depth=0.1):
    """A tree with Poisson branch lengths and dates in its names, its true dates and rate."""
    rng = np.random.default_rng(seed)
    parents, dates, labels = serial_coalescent(rng, n)
    dates = 2020.0 + 10.0 * dates
    rate = depth / (dates.max() - dates[0])
    durations = dates - dates[np.maximum(parents, 0)]
    spread = np.sqrt(np.log(1.0 + variation**2))
    rates = rate * np.exp(rng.normal(-(spread**2) / 2.0, spread, len(parents)))
    lengths = rng.poisson(durations * rates * sites) / sites
    lengths[0] = np.nan
    names = [
        f"{name}|{date!r}" if name else ""
        for name, date in zip(labels, dates.tolist(), strict=True)
    ]
    return WrittenTree(parents, lengths, tuple(names)), dates, rate


def births_and_deaths(rng, births, deaths, sampling, *, tips=None, until=np.inf, present=0.0):
    """Heights and parents of the tips and inner nodes that samples of one origin's history show.

    It ends with a number of tips, or after a time, when a share of all lineages is sampled at once;
    None where lineages die out before that number, or leave fewer than three tips.
    """
    children, end, alive, sampled, now = {}, {}, [0], [], 0.0
    chances = np.array([births, deaths, sampling]) / (births + deaths + sampling)
    while alive and len(sampled) != tips:
        now += rng.exponential(1.0 / (births + deaths + sampling) / len(alive))
        if now > until:
            now = until
            at_once = [node for node in alive if rng.random() < present]
            sampled, end = sampled + at_once, end | dict.fromkeys(at_once, now)
            break
        node = alive.pop(rng.integers(len(alive)))
        end[node] = now
        event = rng.choice(3, p=chances)
        if event == 0:
            first = 2 * len(children) + 1
            children[node] = [first, first + 1]
            alive += children[node]
        elif event == 2:
            sampled.append(node)
    if len(sampled) < 3 or (until == np.inf and len(sampled) < tips):
        return None
    number = {node: tip for tip, node in enumerate(sampled)}
    heights, parents = [now - end[node] for node in sampled], [-1] * len(sampled)
    for node in sorted(children, reverse=True):
        seen = [number[child] for child in children[node] if child in number]
        if len(seen) == 2:
            number[node] = len(heights)
            for child in seen:
                parents[child] = number[node]
            heights.append(now - end[node])
            parents.append(-1)
        elif seen:
            number[node] = seen[0]
    return np.array(heights), np.array(parents)
