"""The figures of the page, drawn and captioned."""
