# Reporting; test_report has what fills a report from samples too.
mkbench_test(test_verdict LABEL host LIBS mkbench_report)
mkbench_test(test_known_errors LABEL host LIBS mkbench_report)
mkbench_test(test_timeline LABEL host LIBS mkbench_report)
mkbench_test(test_report LABEL host LIBS mkbench_judge mkbench_input_cases SOURCES test_report.cpp test_exchange.cpp test_render.cpp test_render_summary.cpp test_parity_table.cpp
             ../judge/test_aggregate.cpp ../judge/test_aggregate_card.cpp ../judge/test_observed.cpp ../judge/test_share.cpp)

# Writes the example report that Python tests read.
add_executable(report_example report/report_example.cpp)
target_link_libraries(report_example PRIVATE mkbench_judge)
