"""Commands that look after an installation: `doctor`, `runs`, `clean` and `init`."""
