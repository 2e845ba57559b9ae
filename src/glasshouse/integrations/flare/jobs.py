"""What the components do when they are added to a job of the Job API."""

from typing import Any


def without_our_code(job: Any) -> None:
    """Keep the job from carrying copies of Glasshouse's files: it is installed where a component of it runs.

    A job without code of its own needs no site's consent to foreign code.
    """
    packages = job.job.app_packages
    if "glasshouse" not in packages:
        job.set_app_packages([*packages, "glasshouse"])
