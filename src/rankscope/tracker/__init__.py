"""Track the spectra of a network while it trains."""

from rankscope.tracker.attach import Attachment, attach
from rankscope.tracker.probe import Probe
from rankscope.tracker.schedules import At, Epochs, Every, LogEpochs, LogSpaced, Schedule
from rankscope.tracker.tracker import Tracker

__all__ = [
    "At",
    "Attachment",
    "Epochs",
    "Every",
    "LogEpochs",
    "LogSpaced",
    "Probe",
    "Schedule",
    "Tracker",
    "attach",
]
