"""What findings say: pure functions of them, which the page, the studies and a release gate all ask."""
