"""Studies, by the names users type."""

from glasshouse.registry import Registry

STUDIES = Registry(
    "study",
    {
        "clients": "glasshouse.studies.clients:ClientsStudy",
    },
    base="glasshouse.studies.study:Study",
)
