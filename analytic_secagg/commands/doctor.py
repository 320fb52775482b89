"""Declaration of the command ``doctor``."""

from __future__ import annotations

from dataclasses import dataclass

from analytic_secagg.console.declaration import Command


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorOptions:
    """Options of the command ``doctor``: none."""


COMMAND = Command(
    name="doctor",
    summary="check this host: versions, code, vectors, extras, extensions, arithmetic, entropy, clock; say what to do",
    examples="""example:
  analytic-secagg doctor
      then analytic-secagg check-site site.toml for keys, rows and folders of a site
""",
    options=DoctorOptions,
    run="analytic_secagg.doctor_command:run",
    finding="a line begins with FAIL and says what to do",
)
