"""Studies, by the names users type."""

from glasshouse.registry import Registry

STUDIES = Registry(
    "study",
    {
        "mia-bad": "glasshouse.studies.mia_bad.study:MIABadStudy",
        "clients": "glasshouse.studies.clients:ClientsStudy",
    },
    base="glasshouse.studies.study:Study",
)
