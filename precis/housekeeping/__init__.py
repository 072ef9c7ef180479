"""Commands for the maintenance of an installation: `doctor`, `runs`, `clean` and `init`."""
