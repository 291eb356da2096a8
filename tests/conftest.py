"""Settings that every test shares."""

from __future__ import annotations

import os
from pathlib import Path

from hypothesis import HealthCheck, settings

# A pipeline must give the same answer for the same commit; a contributor's machine may go and find something new.
settings.register_profile("ci", derandomize=True, deadline=None, print_blob=True)
settings.register_profile("dev", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ci" if os.environ.get("CI") else "dev")

# A JVM lives as long as its test process, and its Python workers import what the JVM's environment names: stores that
# fail on purpose are among that, whichever test happens to start Spark first.
os.environ["PYTHONPATH"] = os.pathsep.join(
    filter(None, [str(Path(__file__).resolve().parents[1]), os.environ.get("PYTHONPATH")])
)
