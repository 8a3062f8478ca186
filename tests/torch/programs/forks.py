"""Forks between steps, while it is recorded and afterwards; the children end as programs usually do."""

import os
import sys
import time

from common import STEPS, Net, finish, training_step

net = Net()
step = training_step(net)


def wait(pid: int) -> str:
    for _ in range(600):
        if os.waitpid(pid, os.WNOHANG)[0]:
            return "ended"
        time.sleep(0.05)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    return "did not end"


for number in range(STEPS):
    step()
    if number % 3 == 2:
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            step()
            print("child", number)
            raise SystemExit(0)
        print(wait(pid), number)
finish(net)
