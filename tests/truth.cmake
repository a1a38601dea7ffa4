# What is right: the analytic checkpoint, the oracle, the committed references.
mkbench_test(test_synthetic LABEL host LIBS mkbench_references)
mkbench_test(test_synthetic_bytes LABEL host LIBS mkbench_references TIMEOUT 300)
mkbench_test(test_greedy_reference LABEL host LIBS mkbench_input_cases
             SOURCES test_greedy_reference.cpp test_sketch.cpp)
mkbench_python_test(test_references)
mkbench_python_test(test_synthetic_python TIMEOUT 180)
mkbench_test(test_oracle LABEL host LIBS mkbench_references TIMEOUT 180)

# The talker's trunk, by vector and by id, against HF transformers: setup's Python has it, so nothing is skipped.
add_executable(trunk_probe trunk_probe.cpp)
target_link_libraries(trunk_probe PRIVATE mkbench_options mkbench_references mkbench_host_twin mkbench_baselines
  mkbench_plain mkbench_ring mkbench_plugin)
set(mkbench_trunk_environment "TRUNK_PROBE=$<TARGET_FILE:trunk_probe>" "PLUGINS=${CMAKE_CURRENT_BINARY_DIR}/plugins"
  "ENGINES=${PROJECT_BINARY_DIR}/engines")
mkbench_python_test(test_talker_trunk TIMEOUT 300 ENVIRONMENT ${mkbench_trunk_environment})
mkbench_python_test(test_talker_trunk_gpu LABEL gpu TIMEOUT 300 ENVIRONMENT ${mkbench_trunk_environment})
