# tests of references
mkbench_library(mkbench_input_cases
  SOURCES support/checkpoint_cases.cpp support/config_cases.cpp support/container_cases.cpp
          support/micro_model.cpp
  PUBLIC mkbench_references)

add_executable(load_probe references/load_probe.cpp)
target_link_libraries(load_probe PRIVATE mkbench_options mkbench_references)

# A minute under the sanitizers: some 300 programs are started.
mkbench_test(test_input_tables LABEL host LIBS mkbench_device mkbench_input_cases TIMEOUT 300)
target_compile_definitions(test_input_tables PRIVATE MKBENCH_LOAD_PROBE="$<TARGET_FILE:load_probe>")
add_dependencies(test_input_tables load_probe)

# The analytic checkpoint, the oracle, the committed references.
mkbench_test(test_synthetic LABEL host LIBS mkbench_input_cases
             SOURCES test_synthetic.cpp test_synthetic_far.cpp)
mkbench_test(test_synthetic_bytes LABEL host LIBS mkbench_references TIMEOUT 300)
mkbench_test(test_greedy_reference LABEL host LIBS mkbench_input_cases
             SOURCES test_greedy_reference.cpp test_sketch.cpp)
mkbench_python_test(test_references)
# Some hundred checkpoints are made and opened, by transformers too.
mkbench_python_test(test_loader_rules TIMEOUT 600 ENVIRONMENT "LOAD_PROBE=$<TARGET_FILE:load_probe>")
mkbench_test(test_oracle LABEL host LIBS mkbench_references TIMEOUT 180)
mkbench_test(test_vector_steps LABEL host LIBS mkbench_references)
mkbench_test(test_rope LABEL host LIBS mkbench_references)
mkbench_test(test_standstill LABEL host LIBS mkbench_references)
mkbench_test(test_step_engine LABEL host LIBS mkbench_references)

mkbench_test(test_config LABEL host LIBS mkbench_input_cases)
# Some 300 folders are made, loaded and inspected.
mkbench_test(test_inspection LABEL host LIBS mkbench_input_cases TIMEOUT 300)
mkbench_test(test_safetensors LABEL host LIBS mkbench_input_cases)
mkbench_test(test_outline LABEL host LIBS mkbench_input_cases)
if(NOT MKBENCH_FUZZ)
  # fuzz/tests.cmake has the program and what writes its seeds.
  add_test(NAME fuzz_safetensors_mutated
    COMMAND fuzz_safetensors --mutate 2 ${CMAKE_CURRENT_BINARY_DIR}/fuzz-seeds/safetensors)
  set_tests_properties(fuzz_safetensors_mutated PROPERTIES LABELS host FIXTURES_REQUIRED fuzz_seeds TIMEOUT 60)
endif()
mkbench_test(test_shared_snapshot LABEL host LIBS mkbench_input_cases)
mkbench_test(test_snapshot LABEL host LIBS mkbench_input_cases SOURCES test_snapshot.cpp test_stored_values.cpp)
mkbench_test(test_talker_folder LABEL host LIBS mkbench_input_cases)
mkbench_test(test_weights LABEL host LIBS mkbench_input_cases)

# Compares the reader with the Python package safetensors, on the fuzzer's corpus too. Exit code 77: this Python does
# not have it.
add_test(NAME safetensors_differential
  COMMAND ${MKBENCH_PYTHON} ${PROJECT_SOURCE_DIR}/tests/references/safetensors_differential.py
          $<TARGET_FILE:load_probe> ${CMAKE_CURRENT_BINARY_DIR}/fuzz-corpus/safetensors)
set_tests_properties(safetensors_differential PROPERTIES
  LABELS host SKIP_RETURN_CODE 77 TIMEOUT 120 ENVIRONMENT "PYTHONDONTWRITEBYTECODE=1")
