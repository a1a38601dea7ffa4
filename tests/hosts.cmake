# Processes that hold engines.
mkbench_test(test_host_python LABEL host LIBS mkbench_cli mkbench_input_cases TIMEOUT 300 WAITS
             SOURCES test_host_python.cpp test_torch_decoder.cpp)
add_library(mkbench_fake_recorder MODULE fake_recorder.cpp)
add_dependencies(test_host_python mkbench_fake_recorder)
target_compile_definitions(test_host_python PRIVATE
  MKBENCH_FAKE_RECORDER="$<TARGET_FILE:mkbench_fake_recorder>"
  MKBENCH_PYTHON="${MKBENCH_PYTHON}" MKBENCH_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
