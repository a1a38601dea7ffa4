# mkbench_micro: its command line on any machine, and a quick subset of it on a GPU.
mkbench_python_test(test_micro)
mkbench_python_test(test_micro_gpu TIMEOUT 120)
set_tests_properties(test_micro_gpu PROPERTIES LABELS gpu SKIP_RETURN_CODE 77)
foreach(name test_micro test_micro_gpu)
  set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT "MICRO_UNDER_TEST=$<TARGET_FILE:mkbench_micro>")
endforeach()
