# Installing, and what shells and man read.
mkbench_python_test(test_completions TIMEOUT 120 ENVIRONMENT "BINARY_UNDER_TEST=$<TARGET_FILE:mkbench>")
mkbench_python_test(test_install CLASSES SLOW WrongOwnBuild TIMEOUT 400 ENVIRONMENT "BINARY_UNDER_TEST=$<TARGET_FILE:mkbench>"
  "BUILD_UNDER_TEST=${PROJECT_BINARY_DIR}" "CMAKE=${CMAKE_COMMAND}" "NINJA=${CMAKE_MAKE_PROGRAM}"
  "CXX=${CMAKE_CXX_COMPILER}")
