# Baselines against HF's committed answers and the engine contract.
set(mkbench_eager_checks eager_contract.cpp eager_lanes.cpp)
mkbench_test(test_eager LABEL host LIBS mkbench_baselines SOURCES test_eager.cpp ${mkbench_eager_checks} TIMEOUT 300)
mkbench_test(test_explain LABEL host LIBS mkbench_baselines)
mkbench_test(test_eager_gpu LABEL gpu LIBS mkbench_baselines
             SOURCES test_eager_gpu.cpp ${mkbench_eager_checks} TIMEOUT 900)

# One cache for the tests of `compiled`, so that its package is compiled once (half a minute) and not in the user's.
set(mkbench_test_cache XDG_CACHE_HOME=${PROJECT_BINARY_DIR}/test-cache)
mkbench_test(test_compiled LABEL host LIBS mkbench_baselines SOURCES test_compiled.cpp ${mkbench_eager_checks}
             TIMEOUT 300)
mkbench_test(test_compiled_package LABEL host LIBS mkbench_compiled_package mkbench_input_cases)
set_tests_properties(test_compiled PROPERTIES ENVIRONMENT ${mkbench_test_cache})
mkbench_python_test(test_compiled_cli CLASSES TIMEOUT 300 ENVIRONMENT "BINARY_UNDER_TEST=$<TARGET_FILE:mkbench>"
  ${mkbench_test_cache})
mkbench_python_test(test_hf CLASSES SLOW Judged TIMEOUT 300 ENVIRONMENT "BINARY_UNDER_TEST=$<TARGET_FILE:mkbench>")
mkbench_python_test(test_step_reads ENVIRONMENT "BINARY_UNDER_TEST=$<TARGET_FILE:mkbench>")
mkbench_python_test(test_host_layers ENVIRONMENT "BINARY_UNDER_TEST=$<TARGET_FILE:mkbench>")
mkbench_python_test(test_stated_values ENVIRONMENT "BINARY_UNDER_TEST=$<TARGET_FILE:mkbench>")
mkbench_python_test(test_stored_weights ENVIRONMENT "BINARY_UNDER_TEST=$<TARGET_FILE:mkbench>")
