"""The main of a child process in tests: it does what it is told by name, and says what came out.

A thread reads what comes and the main thread works, as in Soma's own child.
"""

from __future__ import annotations

import ctypes
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from soma.sessions.child import guard
from soma.sessions.incoming import write_fields, write_preamble

__all__ = ["ask", "main"]


def ask(child, what, *args, seconds=60, blobs=()):
    """Have a child do something; return the fields of its answer."""
    child.send("do", {"call": 0, "what": what, "args": list(args)}, blobs)
    return answer(child, seconds)


def answer(child, seconds=60):
    message = child.receive(time.monotonic() + seconds)
    assert message is not None, "the child has not answered"
    return message.fields.get("made")


def main(connection):
    orders = queue.SimpleQueue()
    threading.Thread(target=_read, args=(connection, orders), daemon=True).start()
    while True:
        message = orders.get()
        call = message.fields["call"]
        try:
            with guard.user_code(call):
                work = globals()[f"do_{message.fields['what']}"]
                made = work(connection, message, *message.fields["args"])
        except guard.Cancelled:
            made = "cancelled"
        connection.send("done", {"call": call, "made": made}, message.blobs)


def _read(connection, orders):
    while (message := _receive(connection)) is not None:
        if message.kind == "cancel":
            guard.cancel(message.fields["call"])
        else:
            orders.put(message)
    os._exit(0)


def _receive(connection):
    while True:
        until = time.monotonic() + guard.AGAIN_S if guard.goes_on() else None
        try:
            return connection.receive(until)
        except TimeoutError:
            guard.remind()


def do_echo(connection, message, *args):
    return list(args)


def do_leave(connection, message, status):
    connection.send("event", {"made": "last words"})
    os._exit(status)


def do_raise_signal(connection, message, number):
    os.kill(os.getpid(), number)
    return "alive"


def do_segfault(connection, message):
    ctypes.string_at(0)


def do_print(connection, message, text):
    sys.stdout.write(text)


def do_raw(connection, message, fd, raw):
    os.write(fd, raw)


def do_allocate(connection, message, size):
    kept = bytearray(size)
    kept[::4096] = b"x" * len(kept[::4096])
    time.sleep(60)
    return len(kept)


def do_hold_interpreter(connection, message):
    """Sleep without letting go of the interpreter."""
    _say_and_hold(connection, "holding")
    ctypes.PyDLL(None).sleep(600)


def do_search(connection, message):
    """One call into C that holds the interpreter and never ends."""
    _say_and_hold(connection, "holding")
    re.match("(a*)*b", "a" * 100)


def _say_and_hold(connection, made):
    """Say something without letting go of the interpreter: no thread comes in between."""
    sys.setswitchinterval(1e6)
    body = write_fields(["event", {"made": made}, []])
    raw = write_preamble(0, len(body), 0) + body
    ctypes.PyDLL(None).write(connection.fileno(), raw, len(raw))


def do_loop(connection, message):
    connection.send("event", {"made": "looping"})
    while True:
        pass


def do_chatter(connection, message):
    """Say things until it is cancelled."""
    for number in range(10**9):
        connection.send("event", {"made": number})


def do_fork(connection, message, own_session):
    """Leave a process behind that holds everything open; return its number."""
    made = os.fork()
    if made == 0:
        if own_session:
            os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        time.sleep(600)
        os._exit(0)
    return made


def do_close_descriptors(connection, message):
    os.closerange(3, 1000)
    time.sleep(600)


def do_rubbish(connection, message):
    os.write(connection.fileno(), b"hello world, this is no message at all" * 10)
    time.sleep(600)


def do_stop(connection, message):
    connection.send("event", {"made": "stopping"})
    os.kill(os.getpid(), signal.SIGSTOP)


def do_place(connection, message):
    return {
        "cwd": str(Path.cwd()),
        "path": sys.path,
        "home": os.environ.get("SOMA_TEST"),
        "argv": sys.argv,
        "affinity": sorted(os.sched_getaffinity(0)),
        "main": sorted(vars(sys.modules["__main__"])),
        "inherited": _descriptors_of_a_program(),
    }


def _descriptors_of_a_program():
    """Return what a program that is started here, and inherits all that it may, has open."""
    script = "import os; print(*[fd for fd in range(100) if _open(fd)])"
    script = (
        "import os\ndef _open(fd):\n  try: return bool(os.fstat(fd))\n  except OSError: pass\n"
        + script
    )
    made = subprocess.run(
        [sys.executable, "-S", "-c", script], capture_output=True, check=True, close_fds=False
    )
    return list(map(int, made.stdout.split()))


def do_torch_threads(connection, message):
    """Pretend that torch was imported, as the user's code would."""
    sys.modules["torch"] = _Torch("torch")


def do_told_threads(connection, message):
    return getattr(sys.modules["torch"], "told", None)


class _Torch(type(sys)):
    def set_num_threads(self, number):
        self.told = number
