# Messages between a parent and its hosts.
mkbench_test(test_calls LABEL host LIBS mkbench_wire)
mkbench_test(test_channel LABEL host LIBS mkbench_wire)
