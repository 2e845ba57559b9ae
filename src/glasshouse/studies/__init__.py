"""Studies, by the names users type."""

from glasshouse.registry import Registry

STUDIES = Registry(
    "study",
    {
        "mia-bad": "glasshouse.studies.mia_bad.study:MIABadStudy",
        "scale-mia": "glasshouse.studies.scale_mia.study:ScaleMIAStudy",
        "clients": "glasshouse.studies.clients:ClientsStudy",
    },
    base="glasshouse.studies.study:Study",
)
