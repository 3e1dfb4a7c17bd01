"""Runs the program on a terminal."""

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time

from support.attn import ATTN


class Terminal:
    """`attn ARGS` whose standard output and error are a terminal; `stdout` replaces the first."""

    def __init__(self, *args, cwd=None, columns=80, term="xterm", stdin=None, stdout=None):
        self.fd, other_end = pty.openpty()
        fcntl.ioctl(other_end, termios.TIOCSWINSZ, struct.pack("4H", 24, columns, 0, 0))
        self.process = subprocess.Popen([ATTN, *map(str, args)], cwd=cwd, stdin=stdin, stdout=stdout or other_end,
                                        stderr=other_end, env=dict(os.environ, TERM=term))
        os.close(other_end)
        self.seen = b""

    def read_until(self, text, seconds=20):
        """Reads until `text` appears, the time is over, or the process has ended."""
        end = time.monotonic() + seconds
        while text not in self.seen and time.monotonic() < end and self.read():
            pass

    def read(self):
        if not select.select([self.fd], [], [], 0.1)[0]:
            return True
        try:
            part = os.read(self.fd, 65536)
        except OSError:  # the other end is closed
            part = b""
        self.seen += part
        return part != b""

    def stop(self, number=signal.SIGTERM):
        """Sends the signal and returns everything that was printed."""
        self.process.send_signal(number)
        return self.end()

    def end(self):
        """Waits for the end and returns everything that was printed."""
        while self.read():
            pass
        self.process.wait()
        os.close(self.fd)
        return self.seen


def on_terminal(*args, **keywords):
    """Everything that `attn ARGS` prints on a terminal, with LF at the end of lines."""
    return Terminal(*args, **keywords).end().decode().replace("\r\n", "\n")
