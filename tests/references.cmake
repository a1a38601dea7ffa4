# tests of references
mkbench_library(mkbench_input_cases
  SOURCES support/checkpoint_cases.cpp support/config_cases.cpp support/container_cases.cpp
          support/micro_model.cpp
  PUBLIC mkbench_references)

add_executable(load_probe load_probe.cpp)
target_link_libraries(load_probe PRIVATE mkbench_options mkbench_references)

mkbench_test(test_input_tables LABEL host LIBS mkbench_input_cases)
target_compile_definitions(test_input_tables PRIVATE MKBENCH_LOAD_PROBE="$<TARGET_FILE:load_probe>")
add_dependencies(test_input_tables load_probe)
