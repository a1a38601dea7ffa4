# The flow of a case, the audit of bytes, soaks.
mkbench_test(test_case_flow LABEL host LIBS mkbench_cli SOURCES test_case_flow.cpp test_case_flow_runs.cpp
             test_block_conditions.cpp test_ceiling_flow.cpp test_timed_steps.cpp test_forecast.cpp test_foretold.cpp
             test_late_ids.cpp test_observed.cpp
             test_format_cost.cpp test_launches.cpp test_parity_join.cpp test_take_values.cpp test_trials.cpp test_host_parts.cpp test_replication.cpp)
mkbench_test(test_audit LABEL host LIBS mkbench_flow SOURCES test_audit.cpp test_run_audit.cpp)
if(TARGET mkbench_host_twin)
  mkbench_test(test_soak LABEL host LIBS mkbench_flow mkbench_host_twin THREADS 2)
endif()
