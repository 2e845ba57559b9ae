"""What the records and stages of Glasshouse's own messages are called."""

PROTOCOL = "glasshouse.secagg"
"""The record that says what a message is; a client keeps its secrets under the same name."""

WORDS = "glasshouse.secagg.words"
"""The record of a masked vector."""

UPDATE = "glasshouse.secagg.update"
"""Where a client keeps its update until it is masked."""

SUMMED = "glasshouse.summed"
"""What else a reply has summed: a record with one vector of this name."""

REPORT = "glasshouse.report"
"""What a client reports in the clear."""

NO_SUM = f"its reply holds {PROTOCOL!r}, as sums do, and no SecureGrid opened it"
"""Why a reply is turned away in which a client says that it is a sum."""

TRAIN, ADVERTISE, SHARE, MASK, REVEAL = "train", "advertise", "share", "mask", "reveal"
