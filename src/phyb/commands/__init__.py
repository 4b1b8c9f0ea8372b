"""What the commands of the command line take; each calls a function that is open to Python users too."""
