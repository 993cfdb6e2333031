"""What tests of sweeps share: a sweep of the sample in this process, and an executor that does as it is told."""

from kvbench.plugins import load_registry
from kvbench.sweeps.cell import run_cell
from kvbench.sweeps.executor import Executor
from kvbench.sweeps.plan import make_plan
from kvbench.sweeps.run import run_sweep

CHAT = "traces/chat.arrow"
BUILT_IN = load_registry(autoload=False)


def run(vary=None, *, trace=CHAT, output=None, executor=None, force=False, method="auto", **shared):
    plan = make_plan(trace, settings=shared, vary=vary)
    return run_sweep(plan, BUILT_IN, executor=executor, output=output, force=force, method=method, autoload=False)


class Told(Executor):
    """Runs cells here in the order that it is told, and stops after some of them."""

    def __init__(self, order=lambda tasks: tasks, stop_after=None):
        self.order, self.stop_after, self.ran = order, stop_after, []

    def run(self, tasks):
        for task in self.order(list(tasks)):
            if self.stop_after is not None and len(self.ran) == self.stop_after:
                raise KeyboardInterrupt
            self.ran.append(task.number)
            yield run_cell(task)
