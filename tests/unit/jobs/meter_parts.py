"""What the meter is given in tests: a clock that the test moves, a device and a log."""

import json

from feedrate.devices.base import Memory
from feedrate.devices.kinds import cpu
from feedrate.jobs import meter as meter_module
from feedrate.jobs.events import encode


class Clock:
    def __init__(self):
        self.now_s = 100.0

    def __call__(self):
        return self.now_s


class Late:
    """A number that is ready once it is said to be."""

    def __init__(self, value):
        self._value, self.is_ready = value, False

    def ready(self):
        return self.is_ready

    def value(self):
        return float(self._value)


class Device:
    """An adapter that counts what it is asked."""

    def __init__(self, *, late=False):
        self.synchronised, self.peaks_reset, self.late, self.deferred = 0, 0, late, []
        self.counter = lambda: None

    def mark(self):
        return meter_module.perf_counter()

    def seconds(self, start, end):
        return end - start

    def energy_counter(self):
        return lambda: self.counter()

    def synchronize(self):
        self.synchronised += 1

    def allocator_retries(self):
        return 3

    def condition(self):
        return {"clock_mhz": 1980}

    def reset_peak(self):
        self.peaks_reset += 1

    def memory(self):
        return Memory(1.0, 2.0)

    def defer(self, value):
        self.deferred.append(Late(value) if self.late else cpu.DeviceAdapter.defer(None, value))
        return self.deferred[-1]


class Log:
    """Keeps events as they were written, through JSON."""

    rank = 0

    def __init__(self):
        self.events = []

    def write(self, event):
        self.events.append(json.loads(encode(event)))

    def named(self, name):
        return [e for e in self.events if e["event"] == name]
