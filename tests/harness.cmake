# The command line, and the parent with its worker.
mkbench_test(test_options LABEL host LIBS mkbench_parent)
mkbench_test(test_plan LABEL host LIBS mkbench_parent)
mkbench_test(test_registry LABEL host LIBS mkbench_host)
mkbench_test(test_messages LABEL host LIBS mkbench_wire)
mkbench_test(test_case_flow LABEL host LIBS mkbench_host mkbench_parent SOURCES test_case_flow.cpp test_case_flow_runs.cpp test_trials.cpp test_host_parts.cpp)
mkbench_test(test_supervisor LABEL host LIBS mkbench_host mkbench_parent)

# The real programs.
foreach(name test_cli test_make_checkpoint)
  mkbench_python_test(${name} CLASSES TIMEOUT 200 ENVIRONMENT "BINARY_UNDER_TEST=$<TARGET_FILE:mkbench>")
endforeach()

# The fault corpus: host lanes run in CI, those of CUDA engines in `mkbench selftest --faults`.
mkbench_test(test_faults LABEL host LIBS mkbench_selftest TIMEOUT 600 THREADS 8 SLOW)
mkbench_test(test_faults_gpu LABEL gpu LIBS mkbench_selftest_cuda mkbench_ring mkbench_plain_faults
             CUDA::cudart TIMEOUT 600)
