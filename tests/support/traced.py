"""Makes system calls in another process, on x86-64 (ptrace)."""

import ctypes
import os
import signal

ATTACH, DETACH, GETREGS, SETREGS, SINGLESTEP = 16, 17, 12, 13, 9
NAMES = ("r15 r14 r13 r12 rbp rbx r11 r10 r9 r8 rax rcx rdx rsi rdi orig_rax rip cs eflags rsp ss fs_base gs_base "
         "ds es fs gs").split()
ARGUMENTS = "rdi rsi rdx r10 r8 r9".split()
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
LIBC.ptrace.restype = ctypes.c_long


class Registers(ctypes.Structure):
    _fields_ = [(name, ctypes.c_ulonglong) for name in NAMES]


def ptrace(request, pid, data=None):
    if LIBC.ptrace(request, pid, None, data) < 0:
        raise OSError(ctypes.get_errno(), "ptrace")


class Traced:
    """A process that waits in a system call, stopped until the end of the `with` block, which kills it."""

    def __init__(self, pid):
        self.pid = pid
        ptrace(ATTACH, pid)
        os.waitpid(pid, 0x40000000)  # __WALL: also a process that is no child
        self.registers = Registers()
        ptrace(GETREGS, pid, ctypes.byref(self.registers))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0x40000000)

    def call(self, number, *arguments):
        """The result of the call, or minus its errno."""
        registers = Registers.from_buffer_copy(self.registers)
        registers.rip -= 2  # the instruction that made the call in which the process waits
        registers.rax, registers.orig_rax = number, 2**64 - 1
        for name, value in zip(ARGUMENTS, arguments):
            setattr(registers, name, value % 2**64)
        ptrace(SETREGS, self.pid, ctypes.byref(registers))
        ptrace(SINGLESTEP, self.pid)
        os.waitpid(self.pid, 0x40000000)
        ptrace(GETREGS, self.pid, ctypes.byref(registers))
        return ctypes.c_longlong(registers.rax).value
