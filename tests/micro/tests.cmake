# mkbench_micro: its command line on any machine, and a quick subset of it on a GPU.
mkbench_python_test(test_micro ENVIRONMENT "MICRO_UNDER_TEST=$<TARGET_FILE:mkbench_micro>")
mkbench_python_test(test_micro_gpu LABEL gpu TIMEOUT 120 ENVIRONMENT
  "MICRO_UNDER_TEST=$<TARGET_FILE:mkbench_micro>")
