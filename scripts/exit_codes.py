"""mkbench's exit codes, as the README lists them, for commands that are scripts."""

RUNTIME_ERROR, BAD_INPUT, NONDETERMINISTIC, INCOMPLETE, TIMEOUT, INTERRUPTED = 1, 2, 3, 5, 7, 130
