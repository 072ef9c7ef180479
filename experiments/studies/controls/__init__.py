"""Controls: small tasks of known structure in which a mechanism is needed and its matched control is useless."""
