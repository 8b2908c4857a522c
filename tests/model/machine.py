# SPDX-License-Identifier: Apache-2.0
"""A model of one node: claims in the API, what is prepared, sandboxes, and where each device is.

It is a relation, not a program: `after(world, step)` lists every (answer, world) that is right after a
step, so that freedom which the design leaves ("refused as busy, or detached first") stands here as two
entries, and everything else is a defect. A world is never changed; a step makes new ones. `view(world)`
is what can be seen of a world from outside. A walk holds all worlds that explain what it has seen, and
has found a difference when none is left. There is no input or output here.

Claims are known by UID, as in "c0.2"; "c0" is the name of its object. A step whose subject does not
exist in a world changes nothing and has the answer SKIPPED, so any part of a list of steps is one, too.
"""
import itertools
from dataclasses import dataclass, field, replace

OK, REFUSED, UNASKED, SKIPPED = "ok", "refused", "unasked", "skipped"  # UNASKED: no plugin was connected
HOST, GONE = "host", "gone"  # where a device is, besides a sandbox's label; GONE: no link of it exists
UNSURE = "?"  # in a view: it is held, and that is all that can be said of it
BEYOND = "beyond "  # followed by a sandbox's label: in a namespace that only this pod can enter
RESTARTS = ("statd", "nrihookd")  # whose restart has statd and the runtime compare their sandboxes
HOLDS, FREES = "holds", "frees"


@dataclass(frozen=True)
class Claim:
    """A ResourceClaim's object; devices and pods are its allocation and reservedFor."""
    uid: str
    devices: tuple
    pods: tuple
    legible: bool = True


@dataclass(frozen=True)
class Row:
    """An allocation: a prepared device."""
    uid: str
    pod: str
    at: str
    sandbox: str = None  # it is attached to
    spoilt: bool = False  # the pod has overwritten its mark
    fresh: bool = True  # it has been in no sandbox since the pod has it


@dataclass(frozen=True)
class Sandbox:
    pod: str
    listed: bool = True  # by the runtime; else it has ended without a word
    late: bool = False  # its pod was given devices, or another sandbox, when it was there already


@dataclass(frozen=True)
class World:
    physical: bool  # devices exist without a claim and come back to the host; else they end where they are
    claims: dict = field(default_factory=dict)  # name -> Claim
    rows: dict = field(default_factory=dict)  # device -> Row
    sandboxes: dict = field(default_factory=dict)  # label -> Sandbox
    legible: bool = True  # the API answers
    vague: frozenset = frozenset()  # UIDs whose status may be of before: it changed while the API was away
    broken: frozenset = frozenset()  # UIDs whose record was damaged

    def __hash__(self):
        return hash(repr(self))

    def put(self, table, key, value):
        """With one entry of a table changed, or without it if value is None."""
        entries = {k: v for k, v in getattr(self, table).items() if k != key}
        return replace(self, **{table: dict(sorted({**entries, key: value}.items())) if value else entries})

    def row(self, device, **changes):
        return self.put("rows", device, replace(self.rows[device], **changes))

    def rows_of(self, **wanted):
        return {d: r for d, r in self.rows.items() if all(getattr(r, k) == v for k, v in wanted.items())}

    def rows_of_name(self, name):
        return {d: r for d, r in self.rows.items() if name_of(r.uid) == name}

    @property
    def end(self):
        """Where a link is whose sandbox's namespace has ended, or which was detached."""
        return HOST if self.physical else GONE

    def written(self, uid):
        """The status of this claim changes now."""
        claim = self.claims.get(name_of(uid))
        seen = self.legible and claim is not None and claim.uid == uid and claim.legible
        return replace(self, vague=self.vague - {uid} if seen else self.vague | {uid})


def name_of(uid):
    return uid.split(".")[0]


def status_suffices(world, uid):
    """Whether what is prepared could be restored from the claim's status, if its record were lost."""
    claim, rows = world.claims.get(name_of(uid)), world.rows_of(uid=uid)
    return world.legible and all(c.legible for c in world.claims.values()) and claim and claim.uid == uid and \
        uid not in world.vague and set(claim.devices) == set(rows) and \
        all((row.pod,) == claim.pods and row.at in (HOST, row.sandbox) for row in rows.values())


def listed(world, sandbox):
    return sandbox in world.sandboxes and world.sandboxes[sandbox].listed


def chain(worlds, function):
    """Goes on from each world that a step before has ended in with OK; those refused stay so."""
    for answer, world in worlds:
        if answer == OK:
            yield from function(world)
        else:
            yield answer, world


def in_turn(world, items, function):
    """function(world, item) for one item after the other; what fails does not keep the others back, and
    then all of it is refused."""
    found = {(OK, world)}
    for item in items:
        found = {(REFUSED if REFUSED in (before, answer) else OK, w)
                 for before, v in found for answer, w in function(v, item)}
    return sorted(found, key=repr)


def between(before, after):
    """Every world in which some of the rows have changed, and others not yet, or are only in no sandbox any more."""
    devices = [d for d in {**before.rows, **after.rows} if before.rows.get(d) != after.rows.get(d)]
    for chosen in itertools.product(*(stages(before, after, device) for device in devices)):
        world = after
        for device, row in zip(devices, chosen):
            world = world.put("rows", device, row)
        yield world


def stages(before, after, device):
    old, new = before.rows.get(device), after.rows.get(device)
    if old and old.sandbox and not old.at.startswith(BEYOND) and (not new or new.sandbox != old.sandbox):
        return old, new, replace(old, sandbox=None, at=HOST if old.at == HOST else before.end, spoilt=False, fresh=False)
    return old, new


# --- taking back and handing over -----------------------------------------------------------------------


def detach(world, device):
    """The device leaves its sandbox."""
    row = world.rows.get(device)
    if not row or not row.sandbox:
        yield OK, world
    elif row.at.startswith(BEYOND):
        yield OK, world.row(device, sandbox=None)
        yield REFUSED, world
    else:
        yield OK, world.row(device, sandbox=None, at=HOST if row.at == HOST else world.end, spoilt=False)
        if row.spoilt and not world.physical:  # such a link cannot be told from one of the pod's own
            yield REFUSED, world


def late(world, pods):
    """What is known of the sandboxes of these pods may be of before."""
    for label, box in world.sandboxes.items():
        if box.pod in pods:
            world = world.put("sandboxes", label, replace(box, late=True))
    return world


def release(world, device):
    """The device is detached and freed, and its row is forgotten."""
    if device in world.rows:
        world = late(world, {world.rows[device].pod})

    def free(w):
        row = w.rows.get(device)
        if row and row.at.startswith(BEYOND):
            yield REFUSED, w
        if not row or not row.at.startswith(BEYOND) or not w.physical:
            yield OK, w.put("rows", device, None)
    yield from chain(detach(world, device), free)


def attach(world, label):
    """All devices of the sandbox's pod come into it, or none. They leave an older sandbox first."""
    box = world.sandboxes[label]
    rows = world.rows_of(pod=box.pod)
    older = [d for d, r in rows.items() if r.sandbox not in (None, label)]

    def give(w):
        missing = [d for d in rows if w.rows[d].sandbox != label or w.rows[d].at != label]
        done = w
        for device in missing:
            done = done.row(device, sandbox=label, at=label, spoilt=False, fresh=False)
        unreachable = [d for d in missing if w.rows[d].at.startswith(BEYOND)]
        odd = unreachable or any(w.rows[d].sandbox == label for d in missing) or w.rows_of(spoilt=True)
        if not unreachable or not w.physical:
            yield OK, done
        if all(w.rows[d].sandbox == label for d in missing):
            yield OK, w  # all are in it, as far as anybody can know
        if odd:
            back = w
            for device in missing:
                row = w.rows[device]
                back = back.row(device, at=row.at if row.at.startswith(BEYOND) else w.end, sandbox=None, fresh=False)
            yield from ((REFUSED, v) for v in between(w, back))
    yield from chain(in_turn(world, older, detach), give)
    if any(row.uid in world.broken for row in rows.values()):
        yield from ((answer, world) for answer in (OK, REFUSED))


def synchronize(world):
    """The runtime's list arrives at statd: sandboxes that are not in it are over, and those whose pods
    lack devices are given them late, unless another sandbox of the pod has them. Nobody waits for an answer."""
    ended = [d for d, r in world.rows.items() if r.sandbox and not listed(world, r.sandbox)]
    lacking = [label for label, box in world.sandboxes.items() if box.listed and world.rows_of(pod=box.pod) and
               all(row.sandbox in (None, label) or not listed(world, row.sandbox)
                   for row in world.rows_of(pod=box.pod).values())]
    for label in lacking:
        box = world.sandboxes[label]
        if any(world.sandboxes[other].pod == box.pod for other in lacking if other != label):
            world = world.put("sandboxes", label, replace(box, late=True))
    for order in itertools.permutations(lacking):
        found = {w for _, w in in_turn(world, ended, detach)}
        for label in order:
            found = {v for w in found for _, v in attach(w, label)}
        yield from found


# --- steps of the API ------------------------------------------------------------------------------------


def publish(world, uid, devices, pods):
    """An object is made, or takes the place of another of its name."""
    yield OK, world.put("claims", name_of(uid), Claim(uid, tuple(devices), tuple(pods)))


def edit(world, name, **changes):
    """Reserved for other pods, allocated anew, torn, or whole again."""
    claim = world.claims.get(name)
    if not claim:
        yield SKIPPED, world
        return
    for key in {"devices", "pods"} & set(changes):
        changes[key] = tuple(changes[key])
    yield OK, world.put("claims", name, replace(claim, **changes))


def entry(world, name):
    """Another driver writes an entry of its own into the claim's status: it is not ours to understand."""
    yield (OK if name in world.claims else SKIPPED), world


def delete(world, name):
    yield (OK if name in world.claims else SKIPPED), world.put("claims", name, None)


def api(world, legible):
    yield OK, replace(world, legible=legible)


def written(world):
    """No claim's status is due any more."""
    if world.legible and all(claim.legible for claim in world.claims.values()):
        yield OK, replace(world, vague=frozenset())
    else:
        yield SKIPPED, world


# --- steps of the kubelet --------------------------------------------------------------------------------


def prepare(world, uid):
    claim = world.claims.get(name_of(uid))
    held = world.rows_of(uid=uid)
    if not world.legible or claim and not claim.legible:
        yield REFUSED, world
        if held:
            yield OK, world
        return
    if not claim or claim.uid != uid or len(claim.pods) != 1:
        yield REFUSED, world
        return
    pod, = claim.pods
    surplus = [d for d in held if d not in claim.devices]
    moving = [d for d, r in held.items() if d in claim.devices and r.pod != pod]

    def follow(w):
        if any(w.rows[d].sandbox for d in moving):
            yield REFUSED, w
        for answer, v in in_turn(w, moving, detach):
            for device in moving if answer == OK else ():
                v = v.row(device, pod=pod, fresh=True)
            yield answer, late(v, {held[d].pod for d in moving})

    def set_up(w):
        fresh = [d for d in claim.devices if d not in w.rows_of(uid=uid)]
        if any(d in w.rows for d in fresh):
            yield REFUSED, w
            return
        if fresh or moving:
            w = late(w, {pod})
        for device in fresh:
            w = w.put("rows", device, Row(uid, pod, HOST))
        yield OK, (w.written(uid) if fresh or surplus else w)
    found = list(chain(chain(in_turn(world, surplus, release), follow), set_up))
    yield from found
    # what it may let go of before it is refused is not said
    yield from ((REFUSED, v) for answer, w in found if answer == REFUSED for v in between(world, w))
    if uid in world.broken:
        yield REFUSED, world


def unprepare(world, uid):
    held = world.rows_of(uid=uid)
    for answer, w in in_turn(world, held, release):
        yield answer, replace(w.written(uid) if held else w, broken=w.broken - {uid})
    if uid in world.broken:
        yield REFUSED, world


# --- steps of the runtime --------------------------------------------------------------------------------


def run(world, pod, sandbox):
    """RunPodSandbox. A sandbox that is refused ends at once."""
    if sandbox in world.sandboxes:
        yield SKIPPED, world
        return
    there = late(world, {pod}).put("sandboxes", sandbox, Sandbox(pod))
    for answer, w in attach(there, sandbox):
        yield answer, w if answer == OK else w.put("sandboxes", sandbox, None)
    yield from ((UNASKED, w) for w in synchronize(there))


def create(world, sandbox, claims=()):
    """CreateContainer: only where all devices of the pod are, or have been when its sandbox started.
    claims: names of those that the container is given, of which another pod may be the user now."""
    if not listed(world, sandbox):
        yield SKIPPED, world
        return
    box = world.sandboxes[sandbox]
    given = {name: world.rows_of_name(name) for name in claims}
    others = {d: r for rows in given.values() for d, r in rows.items() if r.pod != box.pod}
    if not all(given.values()):  # unless the container of before has been given it
        yield OK, world
        yield REFUSED, world
    elif any(row.sandbox or row.fresh for row in others.values()):
        yield REFUSED, world
    else:
        taken = world
        for device in others:
            taken = taken.row(device, pod=box.pod)
        yield from attach(taken, sandbox)
        if others:  # whether it has left its sandbox is not known of each that is in none
            yield REFUSED, world
    yield from ((UNASKED, w) for w in synchronize(world))
    if box.late:  # a kubelet would not ask
        yield OK, world
        yield REFUSED, world


def stop(world, sandbox, **_how):
    """StopPodSandbox and RemovePodSandbox."""
    if not listed(world, sandbox):
        yield SKIPPED, world
        return
    box = world.sandboxes[sandbox]
    for answer, w in in_turn(world, world.rows_of(sandbox=sandbox), detach):
        yield answer, w.put("sandboxes", sandbox, None if answer == OK else replace(box, late=True))
    # found in the list, without a notification
    gone = world.put("sandboxes", sandbox, replace(box, listed=False))
    for answer, w in in_turn(gone, gone.rows_of(sandbox=sandbox), detach):
        yield UNASKED, w
    yield UNASKED, gone


def vanish(world, sandbox):
    """It is over, and the runtime does not say so. What holds its namespace open is statd alone."""
    if not listed(world, sandbox):
        yield SKIPPED, world
        return
    box = world.sandboxes[sandbox]
    yield OK, world.put("sandboxes", sandbox, replace(box, listed=False))


# --- steps of the pod: root in its own namespace ---------------------------------------------------------


def spoil(world, device, how, **_more):
    """It renames its link, changes its MAC address, MTU or mark, or moves or deletes it."""
    row = world.rows.get(device)
    if not row or row.at != row.sandbox or not listed(world, row.sandbox):
        yield SKIPPED, world
    elif how == "move":
        yield OK, world.row(device, at=BEYOND + row.sandbox)
    elif how == "delete":
        yield (SKIPPED, world) if world.physical else (OK, world.row(device, at=GONE))
    else:
        yield OK, world.row(device, spoilt=row.spoilt or how == "mark")


def bury(world, sandbox):
    """The namespace of the pod's own making ends."""
    found = {world}
    for device in world.rows_of(at=BEYOND + sandbox):
        found = {w.row(device, at=world.end, **left) for w in found for left in ({}, {"sandbox": None})}
    yield from (((SKIPPED if w is world else OK), w) for w in found)


# --- daemons ---------------------------------------------------------------------------------------------


def restart(world, daemon, **_how):
    """Ended by SIGTERM or SIGKILL, and started anew."""
    if daemon not in RESTARTS:
        yield OK, world
        return
    found = {world}
    for device, row in world.rows.items() if daemon == "statd" else ():
        if row.sandbox and not listed(world, row.sandbox):
            # the last descriptor of its namespace is closed
            end = row.at if row.at.startswith(BEYOND) or row.at == HOST else world.end
            found = {w.row(device, at=end, sandbox=None) for w in found} | {w.row(device, at=end) for w in found}
        elif row.sandbox and (row.spoilt or row.at != row.sandbox):
            found |= {w.row(device, sandbox=None) for w in found}
    for w in found:
        yield from ((OK, v) for v in synchronize(w))
        if w is not world:
            yield OK, w


def without(world, step):
    """A sandbox or a container starts while statd is away, which comes back afterwards. Pods without a device
    are not kept waiting for it."""
    pod = step["pod"] if "pod" in step else world.sandboxes.get(step["sandbox"], Sandbox("")).pod
    rows = world.rows_of(pod=pod)
    found = {(answer, w) for answer, w in after(world, step) if answer in (SKIPPED, UNASKED) or not rows}
    if (rows or step.get("claims")) and {SKIPPED} != {answer for answer, _ in found}:
        found.add((REFUSED, world))
        unsure_of = world.sandboxes.get(step["sandbox"], Sandbox(pod)).late
        given = [world.rows_of_name(name) for name in step.get("claims", ())]
        known = all(named and set(named) <= set(rows) for named in given)
        if unsure_of or known and all(row.sandbox == step["sandbox"] for row in rows.values()):
            found.add((OK, world))
    for answer, w in found:
        yield from ((answer, v) for _, v in restart(w, "statd"))


def damage(world, uid, **_how):
    """The record of a claim is cut or overwritten while statd is away."""
    if not world.rows_of(uid=uid):
        yield SKIPPED, world
        return
    hurt = replace(world, broken=world.broken | {uid})
    yield from restart(hurt, "statd")


def starved(world, step, at, left):
    """A step in which statd comes to where it can open no descriptor. It may lose a peer, which comes back."""
    whole = set(after(world, step))
    skipped = {SKIPPED} == {answer for answer, _ in whole}
    for answer, w in whole if skipped else whole | set(in_vain(world, step)):
        yield answer, w
        yield from ((answer, v) for v in synchronize(w))


# --- several things at a time ----------------------------------------------------------------------------


def during(world, outer, inner, at):
    """While a message of the outer step is held back, the inner ones begin. As if they had come one after
    the other, in whatever order; any of them may be refused as busy."""
    steps = [outer, *inner]
    for order in itertools.permutations(range(len(steps))):
        found = {((None,) * len(steps), world)}
        for number in order:
            found = {(answers[:number] + (answer,) + answers[number + 1:], v)
                     for answers, w in found
                     for answer, v in {*after(w, steps[number]), *in_vain(w, steps[number])}}
        yield from found


def in_vain(world, step):
    """Refused, and nothing or some of it has happened."""
    if step["do"] in ("prepare", "unprepare", "create", "stop"):
        yield REFUSED, world
    if step["do"] == "run":
        yield from ((REFUSED, v) for v in not_undone(world, step))
    for answer, w in after(world, step) if step["do"] == "prepare" else ():
        if answer == OK:  # what it has set up is undone, what it has let go of is not
            held = replace(w, rows={d: row for d, row in w.rows.items() if d in world.rows})
            yield from ((REFUSED, v) for v in between(world, held))
    for answer, w in after(world, step) if step["do"] == "stop" else ():
        if answer == OK:
            there = late(replace(w, sandboxes=world.sandboxes), {world.sandboxes[step["sandbox"]].pod})
            yield from ((REFUSED, v) for v in between(world, there))
    for answer, w in after(world, step) if step["do"] in ("run", "create", "unprepare") else ():
        if answer != SKIPPED:
            sandboxes = {label: box for label, box in w.sandboxes.items() if label in world.sandboxes}
            for v in between(world, replace(w, sandboxes=sandboxes)):
                yield REFUSED, settle_attached(world, v)
                yield REFUSED, replace(settle_attached(world, v), broken=world.broken)


def not_undone(world, step):
    """Worlds in which some of the devices of a sandbox that was refused are still said to be in it: it has
    ended, and they could not be taken back, or whether they ever were in it is not known."""
    label = step["sandbox"]
    for answer, w in after(world, step):
        devices = [d for d, row in w.rows.items() if row.sandbox == label and answer == OK]
        ended = w.put("sandboxes", label, replace(w.sandboxes[label], listed=False)) if devices else w
        for ways in itertools.product((None, world.end, label), repeat=len(devices)):
            v = ended
            for device, at in zip(devices, ways):
                before = world.rows[device]
                v = v.row(device, at=at or before.at, sandbox=label if at else before.sandbox)
                if at == world.end and before.at == HOST:
                    v = v.row(device, at=HOST)
            if any(ways):
                yield v


def settle_attached(world, v):
    """A sandbox that was not there and is not there has no devices."""
    for device, row in v.rows.items():
        if row.sandbox and row.sandbox not in world.sandboxes:
            v = v.row(device, sandbox=None, at=world.end)
    return v


def interrupted(world, step, daemon, at):
    """A daemon is killed at the at-th message of a step, and started anew. The answer is the step's, and
    whether the message came."""
    whole = set(after(world, step))
    yield from (((answer, False), w) for answer, w in whole)
    outcomes = whole if {SKIPPED} == {answer for answer, _ in whole} else whole | set(in_vain(world, step))
    for answer, w in set(outcomes):
        if answer == OK:  # the answer was lost; the work was done, or some of it
            if step["do"] != "run":
                there = w.sandboxes if step["do"] in ("prepare", "unprepare") else world.sandboxes
                outcomes |= {(REFUSED, v) for v in between(world, replace(w, sandboxes=there))}
            if step["do"] in ("create", "stop"):
                outcomes.add((UNASKED, w))
            if step["do"] == "run":  # the sandbox lives, and what was asked for it goes on
                outcomes |= {(UNASKED, v) for v in between(world, w)}
            if step["do"] == "stop":  # the sandbox ends with its devices in it
                outcomes.add((OK, replace(w, rows=world.rows)))
    for answer, w in outcomes:
        yield from (((answer, True), v) for _, v in restart(w, daemon))
    for _, w in restart(world, daemon):  # the caller's message waited until the daemon was back
        yield from (((answer, True), v) for answer, v in after(w, step))


STEPS = {f.__name__: f for f in (publish, edit, entry, delete, api, written, prepare, unprepare, run, create, stop,
                                 vanish, spoil, bury, restart, without, damage, starved, during, interrupted)}


def after(world, step):
    """Every (answer, world) that is right."""
    return STEPS[step["do"]](world, **{key: value for key, value in step.items() if key != "do"})


# --- what can be seen --------------------------------------------------------------------------------------


def view(world, devices):
    """The tables, the places of links, and what the claims' status says."""
    rows, places = {}, {}
    for device in devices:
        row = world.rows.get(device)
        rows[device] = row and (row.uid, row.pod, row.sandbox)
        if row and row.uid in world.broken:
            rows[device], places[device] = (row.uid, UNSURE, UNSURE), UNSURE
        elif not row:
            places[device] = HOST if world.physical else None
        elif row.at == HOST or listed(world, row.at):
            places[device] = row.at
        elif row.at == GONE and not listed(world, row.sandbox):  # or made again for an attach that came to nothing
            places[device] = frozenset({None, HOST})
        else:  # it may be looked into for the last time
            places[device] = frozenset({None, row.at})
    status = {}
    for claim in world.claims.values():
        if world.legible and claim.legible and claim.uid not in world.vague | world.broken:
            status[claim.uid] = sorted(world.rows_of(uid=claim.uid))
    held = world.rows.values()
    records = {"claims": sorted({row.uid for row in held}), "pods": sorted({row.pod for row in held})}
    return {"rows": rows, "places": places, "status": status, "records": None if world.broken else records}
