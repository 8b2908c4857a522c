# SPDX-License-Identifier: Apache-2.0
"""The model alone, and what makes a walk short; no daemon is needed."""
import random

import pytest

import machine as model
import model_walk
from machine import OK, REFUSED

DEVICES = ("d0", "d1", "d2")


def only(world, step, answer):
    """The worlds after this answer."""
    return {w for answered, w in model.after(world, step) if answered == answer}


def go(world, *steps):
    for step in steps:
        world, = only(world, step, OK)
    return world


def publish(uid, devices, pods=("p0",)):
    return {"do": "publish", "uid": uid, "devices": devices, "pods": pods}


def prepare(uid):
    return {"do": "prepare", "uid": uid}


@pytest.mark.parametrize("physical", (False, True))
@pytest.mark.parametrize("seed", range(10))
def test_every_step_has_an_outcome(physical, seed):
    """Whatever happened before, and every world can be seen."""
    chooser = model_walk.Chooser(seed, DEVICES)
    rng = random.Random(seed)
    world = model.World(physical)
    for _ in range(60):
        step = chooser.step(world)
        outcomes = sorted(model.after(world, step), key=repr)
        assert outcomes, step
        _, world = rng.choice(outcomes)
        view = model.view(world, DEVICES)
        assert set(view["rows"]) == set(view["places"]) == set(DEVICES)
        assert all(row.uid and row.pod for row in world.rows.values())


def test_a_device_is_held_by_one_claim():
    world = go(model.World(False), publish("c0.1", ["d0"]), prepare("c0.1"), publish("c1.1", ["d0"]))
    assert {answer for answer, _ in model.after(world, prepare("c1.1"))} == {REFUSED}


@pytest.mark.parametrize("change", (
    {"do": "delete", "name": "c0"},
    publish("c0.2", ["d1"]),
    {"do": "edit", "name": "c0", "pods": []},
    {"do": "edit", "name": "c0", "pods": ["p0", "p1"]},
    {"do": "edit", "name": "c0", "devices": ["d1"]},
    {"do": "edit", "name": "c0", "legible": False},
    {"do": "api", "legible": False},
))
def test_what_is_prepared_outlives_its_object(change):
    world = go(model.World(False), publish("c0.1", ["d0"]), prepare("c0.1"))
    after = go(world, change, {"do": "restart", "daemon": "statd"})
    assert after.rows == world.rows
    assert not go(after, {"do": "unprepare", "uid": "c0.1"}).rows


def test_a_walk_is_made_short():
    steps = [{"do": "restart", "daemon": f"d{n}"} for n in range(40)]
    needed = [steps[3], steps[17], steps[39]]
    tried = []

    def fails(rest):
        tried.append(rest)
        return all(step in rest for step in needed)
    assert model_walk.shorten(steps, fails, 60) == needed
    assert len(tried) < 120


def test_overlapping_steps_are_taken_apart():
    both = {"do": "during", "outer": prepare("c0.1"), "inner": [{"do": "unprepare", "uid": "c0.1"}], "at": 3}
    steps = [publish("c0.1", ["d0"]), both]
    assert model_walk.shorten(steps, lambda rest: prepare("c0.1") in rest or both in rest, 60) == [prepare("c0.1")]


def test_a_shared_claim_is_one_pods_at_a_time():
    given = {"do": "create", "sandbox": "s1", "claims": ["c0"]}

    def answers(world):
        return {answer for answer, _ in model.after(world, given)} - {model.UNASKED}
    world = go(model.World(False), publish("c0.1", ["d0"]), prepare("c0.1"),
               {"do": "edit", "name": "c0", "pods": ["p0", "p1"]}, {"do": "run", "pod": "p1", "sandbox": "s1"})
    assert answers(world) == {REFUSED}, "it is prepared for another, which has not started"
    world = go(world, {"do": "run", "pod": "p0", "sandbox": "s0"})
    assert answers(world) == {REFUSED}
    world = go(world, {"do": "stop", "sandbox": "s0"})
    assert OK in answers(world)
    after, = only(world, given, OK)
    assert (after.rows["d0"].pod, after.rows["d0"].sandbox) == ("p1", "s1")


def test_of_two_sandboxes_of_a_pod_the_one_that_has_the_device_keeps_it():
    world = go(model.World(False), publish("c0.1", ["d0"]), prepare("c0.1"),
               {"do": "run", "pod": "p0", "sandbox": "s0"}, {"do": "run", "pod": "p0", "sandbox": "s1"})
    assert world.rows["d0"].sandbox == "s1"
    assert {w.rows["d0"].sandbox for w in model.synchronize(world)} == {"s1"}
