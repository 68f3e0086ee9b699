"""The command line: arguments in, output out, nothing else. Each command is a module that loads when it is called."""
