"""Studies, by the names users type."""

from glasshouse.registry import Registry

STUDIES = Registry(
    "study",
    {
        "mia-bad": "glasshouse.studies.mia_bad.grid:MIABadStudy",
        "batch-robustness": "glasshouse.studies.batch_robustness.grid:BatchRobustnessStudy",
        "scale-mia": "glasshouse.studies.scale_mia.grid:ScaleMIAStudy",
        "ats": "glasshouse.studies.ats.grid:ATSStudy",
        "fed-fsnet": "glasshouse.studies.fed_fsnet.grid:FedFSNetStudy",
        "clients": "glasshouse.studies.clients:ClientsStudy",
    },
    base="glasshouse.studies.study:Study",
)
