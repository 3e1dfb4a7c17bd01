"""Starts programs for run.py, one at a time, and measures their memory.

A separate small process, because the peak memory of a program includes that of the process that starts it.
Reads lines of JSON [program, arguments, environment, folder, stdin, stdout, stderr, seconds] and prints
lines of JSON [exit code, -signal or null after the time limit; peak in bytes; seconds of processor time].
"""

import json
import os
import signal
import sys


class Timeout(Exception):
    pass


def raise_timeout(*_):
    raise Timeout


def launch(program, args, environment, folder, stdin, stdout, stderr, seconds):
    new = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    os.chdir(folder)
    child = os.posix_spawn(program, ["attn", *args], environment,
                           file_actions=[(os.POSIX_SPAWN_OPEN, 0, stdin, os.O_RDONLY, 0),
                                         (os.POSIX_SPAWN_OPEN, 1, stdout, new, 0o600),
                                         (os.POSIX_SPAWN_OPEN, 2, stderr, new, 0o600)])
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        _, status, usage = os.wait4(child, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        code = os.waitstatus_to_exitcode(status)
    except Timeout:
        os.kill(child, signal.SIGKILL)
        _, _, usage = os.wait4(child, 0)
        code = None
    return code, usage.ru_maxrss << 10, usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    signal.signal(signal.SIGALRM, raise_timeout)
    for line in sys.stdin:
        print(json.dumps(launch(*json.loads(line))), flush=True)
