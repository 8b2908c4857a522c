# SPDX-License-Identifier: Apache-2.0
"""A walk shared among processes of its program."""
import subprocess
import sys
import threading


def run(commands, on_line):
    """Runs each command with this Python, and calls on_line(number, line) with what each prints. Returns the greatest
    status; 2 if one of them came to no end of its own. With this process they end, too."""
    children = [subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, text=True) for command in commands]

    def relay(number):
        for line in children[number].stdout:
            on_line(number, line)
    readers = [threading.Thread(target=relay, args=(number,)) for number in range(len(children))]
    for reader in readers:
        reader.start()
    try:
        for reader in readers:
            reader.join()
    except BaseException:
        for child in children:
            child.terminate()
        raise
    statuses = [child.wait() for child in children]
    if any(status not in (0, 1) for status in statuses):
        print(f"a part of the walk ended with {statuses}")
        return 2
    return max(statuses)
