"""Callbacks for trainers of other libraries; each module imports the one it is for."""
