# Judging.
mkbench_test(test_parity LABEL host LIBS mkbench_judge SOURCES test_parity.cpp test_parity_token_only.cpp test_live_reference.cpp)
mkbench_test(test_parity_checks LABEL host LIBS mkbench_judge
             SOURCES test_parity_checks.cpp test_diagnosis.cpp test_ratios.cpp test_ratchet.cpp test_parity_trials.cpp test_time_budget.cpp test_findings.cpp test_localise.cpp test_replay_step.cpp test_facts.cpp test_format_cost.cpp)
mkbench_test(test_parity_tiny LABEL host LIBS mkbench_selftest SOURCES test_parity_tiny.cpp test_head.cpp)
mkbench_test(test_known_bugs LABEL host LIBS mkbench_judge mkbench_baselines mkbench_plugin SLOW)
target_compile_definitions(test_known_bugs PRIVATE MKBENCH_BUGGY="$<TARGET_FILE:buggy_cpu>")
add_dependencies(test_known_bugs buggy_cpu)
