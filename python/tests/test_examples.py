"""The examples of examples/python, as a reader runs them."""

import importlib.util
from pathlib import Path
from types import ModuleType

EXAMPLES = Path(__file__).parents[2] / "examples" / "python"


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_larger_cache_hits_more_and_waits_less() -> None:
    results = example("cache").main()
    rates, waits = zip(*results.values(), strict=True)
    assert list(rates) == sorted(rates) and rates[0] < 0.3 < rates[-1] < 1
    assert list(waits) == sorted(waits, reverse=True)


def test_the_learner_finds_the_depth_that_pays_best() -> None:
    """Against all depths, each tried as often."""
    learner = example("learner")
    best, paid = learner.main()
    _, truth = learner.main(rounds=160, epsilon=1.0)
    assert best not in (1, 128) and paid[best] > 2 * paid[1]
    assert truth[best] >= 0.95 * max(truth.values())
