"""The kinds of evidence, by the family of attacks that return them."""
