#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A random walk through everything that can happen to a node, beside a model of it (machine.py).

Each step is done to the real daemons and to the model. When the daemons have come to rest, their tables,
the kernel's links and the claims' status must be what the model says. If they are not, the walk is made
as short as it can be with the same difference, and printed as a list that can be walked again.

    model_walk.py --seconds 600                walk after walk, with seeds from a random one on
    model_walk.py --seed 7 --walks 1           one walk
    model_walk.py --without edit --without api without steps of these kinds
    model_walk.py --replay FILE                a list of steps, as it was printed

Needs root. The kernel's links are dummy ones, or ifb where it makes none; with --manager sriov they are
virtual functions, one node at a time.
"""
import argparse
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time

if __name__ == "__main__":
    sys.dont_write_bytecode = True
    TESTS = pathlib.Path(__file__).resolve().parents[1]
    sys.path[:0] = [str(TESTS / name) for name in ("integration", "crash", "model")]

import machine as model
import managers
import mprpc
import procs as procs_module
import walk_jobs
from crash_node import Lost, wait_for
from machine import REFUSED, SKIPPED, UNASKED
from model_node import Machine, NotHere

STEPS = 60  # of a walk, before what is left is ended
CALLER_SECONDS = 5  # by then a caller that repeats must have had its way
SEEN_SECONDS = 8  # by then what follows an answer must have happened
SEEN_AGAIN_SECONDS = 1  # the same for a difference that was seen before
STEADY_LOOKS = 4  # that must be the same, where more than one outcome is right: the first may pass
SHORTEN_SECONDS = 240
MAX_WORLDS = 4000
NAMES = ("c0", "c1", "c2")
PODS = ("p0", "p1", "p2")
CALLS = ("prepare", "unprepare", "run", "create", "stop")  # in which the daemons have work
LOSES = ("starved", "interrupted", "during", "without", "restart", "damage")  # calls without an answer are possible
AGAIN_SECONDS = 3  # after which nrihookd has asked again for what had no answer
NO_DAEMON = ("publish", "edit", "entry", "delete", "api")  # nothing is to be seen after these


class Difference(AssertionError):
    """The daemons are where the model cannot be. kind says in which respect."""

    def __init__(self, kind, text):
        super().__init__(text)
        self.kind = kind


# --- choosing steps ----------------------------------------------------------------------------------------


class Chooser:
    """Steps that make sense in a world, at random."""

    def __init__(self, seed, devices, without=()):
        self.rng = random.Random(seed)
        self.devices = devices
        self.without = set(without)
        self.made = {}  # name -> how many UIDs it has had
        self.sandboxes = 0

    def step(self, world):
        choices = [(weight, make) for weight, kind, make in self.choices(world) if kind not in self.without]
        return self.rng.choices([make for _, make in choices], [weight for weight, _ in choices])[0]()

    def choices(self, world):
        """(weight, kind, what makes the step)"""
        pick = self.rng.choice
        free = [name for name in NAMES if name not in world.claims]
        held = sorted({row.uid for row in world.rows.values()})
        listed = [label for label, box in world.sandboxes.items() if box.listed]
        newest = [max((b for b in listed if world.sandboxes[b].pod == pod), key=lambda b: int(b[1:]))
                  for pod in {world.sandboxes[b].pod for b in listed}]
        attached = [d for d, row in world.rows.items() if row.sandbox in listed and row.at == row.sandbox]
        beyond = [row.at.removeprefix(model.BEYOND) for row in world.rows.values() if row.at.startswith(model.BEYOND)]
        torn = [name for name, claim in world.claims.items() if not claim.legible]
        if free:
            yield 6, "publish", lambda: self.publish(pick(free))
        if world.claims:
            names = sorted(world.claims)
            current = [claim.uid for claim in world.claims.values()]
            prepared = [name for name in names if world.claims[name].uid in held] or names
            yield 2, "replace", lambda: self.publish(pick(prepared))
            yield 1.5, "reserve", lambda: {"do": "edit", "name": pick(names), "pods": self.pods()}
            yield 1.5, "allocate", lambda: {"do": "edit", "name": pick(names), "devices": self.some_devices()}
            yield 0.5, "tear", lambda: {"do": "edit", "name": pick(names), "legible": False}
            yield 0.7, "entry", lambda: {"do": "entry", "name": pick(names)}
            yield 2, "delete", lambda: {"do": "delete", "name": pick(prepared)}
            yield 9, "prepare", lambda: {"do": "prepare", "uid": pick(current)}
        if torn:
            yield 3, "tear", lambda: {"do": "edit", "name": pick(torn), "legible": True}
        yield (0.5 if world.legible else 4), "api", lambda: {"do": "api", "legible": not world.legible}
        if held:
            yield 1, "prepare", lambda: {"do": "prepare", "uid": pick(held)}
            yield 4, "unprepare", lambda: {"do": "unprepare", "uid": pick(held)}
        if hurtable := [uid for uid in held if model.status_suffices(world, uid)]:
            yield 0.1, "damage", lambda: {"do": "damage", "uid": pick(hurtable),
                                          "how": pick(("cut", "empty", "garbage"))}
        yield 0.4, "unprepare", lambda: {"do": "unprepare", "uid": f"{pick(NAMES)}.{self.rng.randint(1, 9)}"}
        if len(listed) < 3:
            with_rows = sorted({row.pod for row in world.rows.values()} - {world.sandboxes[b].pod for b in listed})
            yield 6, "run", lambda: self.run(pick(with_rows or PODS))
            yield 0.5, "run", lambda: self.run(pick(PODS))
        if newest:
            yield 4, "create", lambda: {"do": "create", "sandbox": pick(sorted(newest))}
            yield 3, "share", lambda: self.share(world, pick(sorted(newest)))
            yield 1, "share", lambda: self.reserve_for_more(world)
        if listed:
            yield 4, "stop", lambda: {"do": "stop", "sandbox": pick(listed), "early": pick((False, True))}
            yield 1, "vanish", lambda: {"do": "vanish", "sandbox": pick(listed)}
        if attached:
            yield 2, "spoil", lambda: {"do": "spoil", "device": pick(attached),
                                       "how": pick(("rename", "rename", "mac", "mtu", "move", "delete"))}
            yield 1, "mark", lambda: {"do": "spoil", "device": pick(attached), "how": "mark",
                                      "text": pick(("foreign", "garbage", "empty", "plain"))}
        if beyond:
            yield 2, "spoil", lambda: {"do": "bury", "sandbox": pick(beyond)}
        yield 3, "restart", lambda: {"do": "restart", "daemon": self.daemon(), "how": pick(("kill", "stop"))}
        yield 0.5, "without", lambda: {"do": "without", "step": self.call(world, ("run", "create"))}
        yield 1.5, "starved", lambda: {"do": "starved", "step": self.call(world, pick((CALLS, ("run",)))),
                                       "at": self.rng.randint(0, 9), "left": pick((0, 0, 1, 2))}
        yield 2, "interrupted", lambda: {"do": "interrupted", "step": self.call(world), "daemon": self.daemon(),
                                         "at": self.rng.randint(0, 14)}
        yield 3, "during", lambda: self.during(world)

    def daemon(self):
        return self.rng.choice(("statd", "statd", "statd", "netnsd", "manager", "draplugind", "nrihookd"))

    def some_devices(self):
        return sorted(self.rng.sample(self.devices, self.rng.choice((1, 1, 2))))

    def pods(self):
        return self.rng.sample(PODS, self.rng.choice((0, 1, 1, 1, 1, 2)))

    def publish(self, name):
        self.made[name] = self.made.get(name, 0) + 1
        return {"do": "publish", "uid": f"{name}.{self.made[name]}", "devices": self.some_devices(),
                "pods": [self.rng.choice(PODS)] if self.rng.random() < 0.9 else self.pods()}

    def run(self, pod):
        self.sandboxes += 1
        return {"do": "run", "pod": pod, "sandbox": f"s{self.sandboxes}"}

    def share(self, world, sandbox):
        """A container that names a claim, for whichever pod it was prepared."""
        pod = world.sandboxes[sandbox].pod
        names = [name for name, claim in world.claims.items() if pod in claim.pods]
        return {"do": "create", "sandbox": sandbox, "claims": [self.rng.choice(names)] if names else []}

    def reserve_for_more(self, world):
        """For a pod that has a sandbox, besides those that are there."""
        name = self.rng.choice(sorted(world.claims) or ["c0"])
        pods = {box.pod for box in world.sandboxes.values() if box.listed}
        return {"do": "edit", "name": name, "pods": sorted({*world.claims[name].pods, self.rng.choice(sorted(pods))}
                                                           if name in world.claims else pods)}

    def call(self, world, kinds=CALLS):
        """A step in which the daemons have work."""
        while True:
            choices = [(w, make) for w, kind, make in self.choices(world) if kind in kinds]
            if choices:
                return self.rng.choices([make for _, make in choices], [w for w, _ in choices])[0]()
            kinds = ("unprepare", "run")

    def during(self, world):
        """Something is under way, and the claim's object changes, and it is prepared or unprepared."""
        outer = self.call(world)
        pod = outer.get("pod") or world.sandboxes.get(outer.get("sandbox"), model.Sandbox("")).pod
        rows = world.rows_of(pod=pod) or world.rows
        uid = outer.get("uid") or self.rng.choice(sorted({row.uid for row in rows.values()}) or ["c0.1"])
        name = model.name_of(uid)
        inner = [{"do": "prepare", "uid": uid}, {"do": "unprepare", "uid": uid}]
        if name in world.claims and "reserve" not in self.without:
            inner.insert(0, {"do": "edit", "name": name, "pods": [self.rng.choice(PODS)]})
        while len(inner) > 1 and self.rng.random() < 0.4:
            inner.remove(self.rng.choice(inner))
        return {"do": "during", "outer": outer, "inner": inner, "at": self.rng.randint(0, 12)}


# --- comparing ------------------------------------------------------------------------------------------------


def differences(view, seen):
    """(what, of which, wanted, found). A world does not say of each claim what its status is, and of a device
    whose record is damaged only that no other claim has it."""
    found = []
    for what in ("rows", "places", "status", "records"):
        if view[what] is None or seen[what] is None:
            continue
        keys = view[what] if what == "status" else {**view[what], **seen[what]}
        pairs = [(key, view[what].get(key), seen[what].get(key)) for key in keys]
        found += [(what, *pair) for pair in pairs if pair[1] != pair[2] and not unsure(*pair[1:])]
    return found


def unsure(wanted, found):
    if isinstance(wanted, frozenset):
        return found in wanted
    if isinstance(wanted, tuple) and model.UNSURE in wanted:
        return found is None or found[0] == wanted[0]
    return wanted == model.UNSURE


# --- one walk ------------------------------------------------------------------------------------------------


class Walk:
    """Steps, done to both. worlds are those that explain what was seen so far."""

    def __init__(self, machine, seconds=SEEN_SECONDS):
        self.machine = machine
        self.seconds = seconds
        self.worlds = {model.World(machine.manager.physical)}
        self.again = 0  # until when sandboxes may be compared once more
        self.steps = []
        self.answers = []  # of these, but of one with which there was a difference

    @property
    def world(self):
        return min(self.worlds, key=repr)

    def go(self, step):
        self.steps.append(step)
        found = {pair for world in self.worlds for pair in model.after(world, step)}
        allowed = {answer for answer, _ in found}
        told = len(self.machine.told)
        try:
            answer = self.answer(step, allowed)
        except NotHere:
            self.steps.pop()
            return SKIPPED
        if answer not in allowed:
            texts = [text for _, _, text in self.machine.told[told:] if text]
            raise Difference(f"answer of {step['do']}", f"{step['do']} is answered with {answer}, not "
                             f"{' or '.join(sorted(map(str, allowed)))}: {'; '.join(texts[-2:])}")
        self.worlds = {world for answered, world in found if answered == answer}
        if step["do"] in LOSES:
            self.again = time.monotonic() + AGAIN_SECONDS * procs_module.STRETCH
        if step["do"] not in NO_DAEMON:
            self.look()
        self.answers.append(answer)
        return answer

    def answer(self, step, allowed):
        """Repeats what fails and must not, as the caller in question would."""
        deadline = time.monotonic() + min(CALLER_SECONDS, self.seconds) * procs_module.STRETCH
        while True:
            answer = self.machine.apply(step)
            if answer in allowed or answer not in (REFUSED, UNASKED) or time.monotonic() > deadline:
                return answer
            self.machine.node.settle()

    def look(self):
        """Waits until the daemons have come to rest where one of the worlds is."""
        machine = self.machine
        machine.node.settle()
        worlds = set(self.worlds)
        if time.monotonic() < self.again:
            worlds |= {later for world in self.worlds for later in model.synchronize(world)}
        views = [(model.view(world, machine.manager.devices), world) for world in worlds]
        looks = 1 if all(view == views[0][0] for view, _ in views) else STEADY_LOOKS
        seen, times = None, 0

        def fits():
            nonlocal seen, times
            before, seen = seen, machine.see()
            times = times + 1 if seen == before else 1
            return times >= looks and {world for view, world in views if not differences(view, seen)}
        try:
            self.worlds = wait_for(fits, self.seconds, "the node is where the model cannot be")
        except Lost:
            raise self.difference(seen, [view for view, _ in views]) from None
        machine.looked()
        if machine.node.proxy.problems:
            raise Difference("proxy", "\n".join(machine.node.proxy.problems))

    @staticmethod
    def difference(seen, views):
        """Against the view that is nearest."""
        nearest = min((differences(view, seen) for view in views), key=len)
        return Difference(" ".join(sorted({what for what, *_ in nearest})), "\n".join(
            f"{what}: {key} should be {wanted}, and is {found}" for what, key, wanted, found in nearest))

    def end(self):
        """Steps after which nothing is left, from whatever world."""
        yield {"do": "api", "legible": True}
        for name in sorted({name for world in self.worlds for name, c in world.claims.items() if not c.legible}):
            yield {"do": "edit", "name": name, "legible": True}
        if any(world.vague for world in self.worlds):  # which may take a minute from the last failure
            yield {"do": "restart", "daemon": "statd", "how": "kill"}
            yield {"do": "written"}
        for label in sorted(self.world.sandboxes):
            if any(world.sandboxes.get(label) and world.sandboxes[label].listed for world in self.worlds):
                yield {"do": "stop", "sandbox": label}
        stuck = sorted({label for world in self.worlds for label, box in world.sandboxes.items() if box.listed})
        for label in stuck:
            yield {"do": "vanish", "sandbox": label}
        if any(world.sandboxes for world in self.worlds):
            yield {"do": "restart", "daemon": "statd", "how": "kill"}
        for label in sorted({row.at.removeprefix(model.BEYOND) for world in self.worlds for row in world.rows.values()
                             if row.at.startswith(model.BEYOND)}):
            yield {"do": "bury", "sandbox": label}
        for uid in sorted({row.uid for world in self.worlds for row in world.rows.values()}):
            yield {"do": "unprepare", "uid": uid}
        for name in sorted({name for world in self.worlds for name in world.claims}):
            yield {"do": "delete", "name": name}


class Walker:
    """Makes nodes and walks on them; one with which something is wrong is left for a new one."""

    def __init__(self, manager, verbose=False):
        self.manager = manager
        self.verbose = verbose
        self.machine = self.directory = None

    def open(self):
        self.directory = tempfile.TemporaryDirectory(prefix="netclaim-", dir=procs_module.MEMORY, ignore_cleanup_errors=True)
        self.machine = Machine(pathlib.Path(self.directory.name), self.manager)

    def close(self, failed=False):
        if self.machine:
            logs = os.environ.get("MODEL_LOGS") if failed else None
            try:
                self.machine.close(failed)
            finally:
                if logs:
                    keep_logs(self.machine.node, pathlib.Path(logs))
                self.directory.cleanup()
        self.machine = None

    def walk(self, next_step, seconds=SEEN_SECONDS):
        """Does steps until next_step(walk) returns None. (walk, None or the difference)"""
        if not self.machine:
            self.open()
        self.machine.begin()
        walk = Walk(self.machine, seconds)
        started = time.monotonic()
        try:
            while (step := next_step(walk)) is not None:
                answer = walk.go(step)
                if self.verbose:
                    print(f"{json.dumps(step)}: {answer} ({time.monotonic() - started:.1f} s)", flush=True)
                if len(walk.worlds) > MAX_WORLDS:
                    raise Difference("model", f"{len(walk.worlds)} worlds explain it, which is no explanation")
        except (AssertionError, mprpc.Error, TimeoutError, OSError, subprocess.SubprocessError) as e:
            found = e if isinstance(e, Difference) else Difference(type(e).__name__, str(e))
            crashed = [p for p in self.machine.node.daemons.values() if not p.running() and not p.expected]
            if crashed:
                name, status = crashed[0].name, crashed[0].status
                found = Difference(f"{name} ended", f"{name} ended by itself with status {status}")
            self.close(failed=True)
            return walk, found
        if any(world.broken or world.rows for world in walk.worlds):
            self.close(failed=True)
        return walk, None

    def random_walk(self, seed, without=(), steps=STEPS):
        chooser = Chooser(seed, self.manager.devices, without)
        end = None

        def next_step(walk):
            nonlocal end
            if len(walk.steps) < steps:
                return chooser.step(walk.world)
            end = end or walk.end()
            return next(end, None)
        return self.walk(next_step)

    def replay(self, steps):
        """These steps, on a new node."""
        rest = iter(steps)
        self.close(failed=True)
        return self.walk(lambda _: next(rest, None), SEEN_AGAIN_SECONDS)


def keep_logs(node, path):
    path.mkdir(parents=True, exist_ok=True)
    with open(path / f"{time.time():.0f}-{os.getpid()}.log", "w", encoding="utf-8") as log:
        for name, text in node.processes.logs()[-12:]:
            log.write(f"\n--- {name}\n{text}")


# --- making a walk short -----------------------------------------------------------------------------------


def shorten(steps, fails, seconds):
    """Leaves out what concerns a claim, a sandbox, a daemon or a kind of step, then parts of the list as they
    come, smaller ones each time (delta debugging, Zeller), as long as it still fails; then makes what is left
    simpler. A step that has lost its subject does nothing."""
    deadline = time.monotonic() + seconds

    def still_fails(rest):
        return len(rest) > 0 and time.monotonic() < deadline and fails(rest)
    for word in sorted({word for step in steps for word in words_of(step)}):
        rest = [step for step in steps if word not in words_of(step)]
        if len(rest) < len(steps) and still_fails(rest):
            steps = rest
    parts = 2
    while len(steps) > 1 and time.monotonic() < deadline:
        size = -(-len(steps) // parts)
        for begin in range(0, len(steps), size):
            rest = steps[:begin] + steps[begin + size:]
            if still_fails(rest):
                steps, parts = rest, max(parts - 1, 2)
                break
        else:
            if size == 1:
                break
            parts = min(parts * 2, len(steps))
    for number, step in enumerate(steps):
        for simpler in simpler_ones(step):
            rest = steps[:number] + simpler + steps[number + 1:]
            if still_fails(rest):
                return shorten(rest, fails, deadline - time.monotonic())
    return steps


def words_of(step):
    """What it is about."""
    words = {step["do"]}
    for key in ("uid", "name", "sandbox", "daemon"):
        if key in step:
            words.add(model.name_of(step[key]))
    for part in [step[key] for key in ("step", "outer") if key in step] + step.get("inner", []):
        words |= words_of(part)
    return words


def simpler_ones(step):
    """Lists of steps that do less than this one."""
    if step["do"] in ("interrupted", "starved", "without"):
        yield [step["step"]]
    if step["do"] == "interrupted":
        yield [step["step"], {"do": "restart", "daemon": step["daemon"]}]
    if step["do"] == "during":
        yield [step["outer"], *step["inner"]]
        if len(step["inner"]) > 1:
            for left_out in range(len(step["inner"])):
                yield [{**step, "inner": step["inner"][:left_out] + step["inner"][left_out + 1:]}]


def report(walker, walk, found, say, seconds=SHORTEN_SECONDS):
    """Prints the difference, and the shortest walk to it."""
    started = time.monotonic()
    say("    " + str(found).replace("\n", "\n    "))
    last = [found]

    def fails(steps):
        _, again = walker.replay(steps)
        if again and again.kind == found.kind:
            last[0] = again
            return True
        return False
    done = [step for step, answer in zip(walk.steps, [*walk.answers, None]) if answer != SKIPPED]
    steps = shorten(done if fails(done) else walk.steps, fails, seconds)
    if last[0] is not found:
        say("    shortened: " + str(last[0]).replace("\n", "\n    "))
    say(f"    {len(steps)} steps lead to it; it took {time.monotonic() - started:.0f} s to find them among "
        f"{len(walk.steps)}:")
    say("\n".join(map(json.dumps, steps)) + "\n")
    return steps


# --- all of them ---------------------------------------------------------------------------------------------


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=600, metavar="S", help="walk for so long (600)")
    parser.add_argument("--walks", type=int, metavar="N", help="so many walks, whatever time they take")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 31),
                        help="of the first walk; the next ones have those after it")
    parser.add_argument("--steps", type=int, default=STEPS, metavar="N", help=f"of a walk ({STEPS})")
    parser.add_argument("--manager", choices=tuple(managers.KINDS), default="dummy",
                        help="whose devices; sriov: functions of real adapters")
    parser.add_argument("--without", action="append", default=[], metavar="KIND", help="no steps of this kind")
    parser.add_argument("--shorten", type=float, default=SHORTEN_SECONDS, metavar="S",
                        help=f"take no longer to make a walk short ({SHORTEN_SECONDS})")
    parser.add_argument("--differences", type=int, default=1, metavar="N", help="go on until there are so many (1)")
    parser.add_argument("--stride", type=int, default=1, help=argparse.SUPPRESS)  # from one seed to the next
    parser.add_argument("--jobs", type=int, default=1, metavar="J", help="so many nodes at a time")
    parser.add_argument("--replay", metavar="FILE", help="walk these steps: one a line, as JSON")
    parser.add_argument("--verbose", action="store_true", help="print each step as it is done")
    return parser.parse_args()


def read_steps(path):
    """As report() prints them; all other lines are somebody's notes."""
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.lstrip().startswith("{")]


def replay(walker, options):
    steps = read_steps(options.replay)
    told = []

    def next_step(walk):
        for step, answer, text in walk.machine.told[len(told):]:
            print(f"{json.dumps(step)}: {answer} {text}")
        told[:] = walk.machine.told
        return steps[len(walk.steps)] if len(walk.steps) < len(steps) else None
    walk, found = walker.walk(next_step)
    for step, answer, text in walk.machine.told[len(told):]:
        print(f"{json.dumps(step)}: {answer} {text}")
    print(f"after {len(walk.steps)} steps: {str(found) if found else 'no difference'}")
    return 1 if found else 0


def walk_all(walker, options, say):
    """Returns how many walks there were, how many steps, and the differences: (seed, difference, steps)."""
    started = time.monotonic()
    walks = steps = 0
    differences = []
    while (walks < options.walks if options.walks else time.monotonic() - started < options.seconds):
        seed = options.seed + walks * options.stride
        walks += 1
        begun = time.monotonic()
        walk, found = walker.random_walk(seed, options.without, options.steps)
        steps += len(walk.steps)
        if found is None:
            continue
        say(f"DIFFERENCE with seed {seed} after {len(walk.steps)} steps, {time.monotonic() - begun:.0f} s "
            f"({time.monotonic() - started:.0f} s in all)")
        differences.append((seed, found, report(walker, walk, found, say, options.shorten)))
        if len(differences) >= options.differences:
            break
    return walks, steps, differences


def summary(walks, steps, differences, seconds):
    return f"{walks} walks, {steps} steps, {differences} differences, {seconds:.0f} s"


def run_jobs(options):
    """Shares the walks among processes of this program, and adds up what they say."""
    rest = [f"--without={kind}" for kind in options.without]
    rest += [f"--walks={-(-options.walks // options.jobs)}"] if options.walks else []
    rest += [f"--{name}={getattr(options, name)}" for name in ("seconds", "steps", "shorten", "differences", "manager")]
    commands = [[__file__, f"--seed={options.seed + job}", f"--stride={options.jobs}", *rest] for job in range(options.jobs)]
    last = [""] * options.jobs
    lines = [[] for _ in commands]
    printing = threading.Lock()

    def relay(job, line):
        last[job] = line
        lines[job].append(line)
        if not line.strip():  # a difference is printed as a whole
            with printing:
                print("".join(lines[job]), end="", flush=True)
            lines[job].clear()
    started = time.monotonic()
    status = walk_jobs.run(commands, relay)
    if status < 2:
        numbers = [[int(word) for word in line.split() if word.isdigit()] for line in last]
        print(summary(*(sum(n[i] for n in numbers) for i in range(3)), time.monotonic() - started))
    return status


def main():
    options = parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))
    if options.jobs > 1 and not options.replay:
        return run_jobs(options)
    walker = Walker(managers.KINDS[options.manager](), options.verbose)
    started = time.monotonic()
    try:
        if options.replay:
            return replay(walker, options)
        walks, steps, differences = walk_all(walker, options, lambda text: print(text, flush=True))
        print(summary(walks, steps, len(differences), time.monotonic() - started), flush=True)
        return 1 if differences or not walks else 0
    finally:
        walker.close(failed=True)


if __name__ == "__main__":
    sys.exit(main())
