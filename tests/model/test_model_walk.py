# SPDX-License-Identifier: Apache-2.0
"""A sample of the model walk, with seeds that stay the same, and the short walks that led to a defect once;
`make modelwalk` goes on from a random one. See model_walk.py."""
import os
import pathlib

import pytest

import managers
import model_walk

pytestmark = [pytest.mark.needs_root]

WALKS = int(os.environ.get("NETCLAIM_MODEL_WALKS", "12"))
SRIOV_STEPS = 40
SHORTEN_SECONDS = 60


def walk(walker, seed, **how):
    done, found = walker.random_walk(seed, **how)
    if found:
        lines = [f"seed {seed}:"]
        model_walk.report(walker, done, found, lines.append, SHORTEN_SECONDS)
        pytest.fail("\n".join(lines), pytrace=False)


@pytest.fixture(scope="module")
def dummies():
    walker = model_walk.Walker(managers.dummy())
    yield walker
    walker.close(failed=True)


@pytest.fixture(scope="module")
def functions():
    walker = model_walk.Walker(managers.Sriov())
    yield walker
    walker.close(failed=True)


@pytest.mark.parametrize("seed", range(1, 1 + WALKS))
def test_dummy_links(dummies, seed):
    walk(dummies, seed)


@pytest.mark.parametrize("path", sorted((pathlib.Path(__file__).parent / "found").glob("*.walk")), ids=lambda p: p.stem)
def test_what_was_found_once(dummies, path):
    _, found = dummies.replay(model_walk.read_steps(path))
    assert found is None, str(found)


@pytest.mark.needs_igb
def test_virtual_functions(functions):
    walk(functions, 1, steps=SRIOV_STEPS)
