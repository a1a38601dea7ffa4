# Judging and reporting.
mkbench_test(test_verdict LABEL host LIBS mkbench_report)
mkbench_test(test_known_errors LABEL host LIBS mkbench_report)
mkbench_test(test_statistics LABEL host LIBS mkbench_measure SOURCES test_statistics.cpp test_two_level.cpp test_clocks.cpp)
mkbench_test(test_timeline LABEL host LIBS mkbench_report)
mkbench_test(test_parity LABEL host LIBS mkbench_judge SOURCES test_parity.cpp test_parity_token_only.cpp test_live_reference.cpp)
mkbench_test(test_parity_checks LABEL host LIBS mkbench_judge
             SOURCES test_parity_checks.cpp test_ratios.cpp test_ratchet.cpp test_parity_trials.cpp test_time_budget.cpp test_findings.cpp test_localise.cpp test_replay_step.cpp)
mkbench_test(test_parity_tiny LABEL host LIBS mkbench_selftest)
mkbench_test(test_report LABEL host LIBS mkbench_judge SOURCES test_report.cpp test_aggregate.cpp test_aggregate_card.cpp test_share.cpp test_render.cpp test_parity_table.cpp)

# Writes the example report that Python tests read.
add_executable(report_example report_example.cpp)
target_link_libraries(report_example PRIVATE mkbench_judge)
mkbench_python_test(test_report_files TIMEOUT 240 ENVIRONMENT
  "MKBENCH_REPORT_EXAMPLE=$<TARGET_FILE:report_example>")
mkbench_python_test(test_report_page TIMEOUT 240 ENVIRONMENT
  "MKBENCH_REPORT_EXAMPLE=$<TARGET_FILE:report_example>")
mkbench_python_test(test_page_browser TIMEOUT 240 ENVIRONMENT
  "MKBENCH_REPORT_EXAMPLE=$<TARGET_FILE:report_example>")
