# What is right: the analytic checkpoint, the oracle, the committed references.
mkbench_test(test_synthetic LABEL host LIBS mkbench_input_cases)
mkbench_test(test_synthetic_bytes LABEL host LIBS mkbench_references TIMEOUT 300)
mkbench_test(test_greedy_reference LABEL host LIBS mkbench_input_cases
             SOURCES test_greedy_reference.cpp test_sketch.cpp)
mkbench_python_test(test_references)
mkbench_python_test(test_synthetic_python TIMEOUT 180)
mkbench_test(test_oracle LABEL host LIBS mkbench_references TIMEOUT 180)
mkbench_test(test_vector_steps LABEL host LIBS mkbench_references)
