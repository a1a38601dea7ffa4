# The command line, and the parent with its worker.
mkbench_test(test_options LABEL host LIBS mkbench_options_parser)
