# Finished reports: recomputed, compared, gone on with.
mkbench_test(test_recompute LABEL host LIBS mkbench_cli SOURCES test_recompute.cpp test_report_versions.cpp TIMEOUT 300)
mkbench_test(test_versions LABEL host LIBS mkbench_cli SOURCES test_versions.cpp test_gate_calibration.cpp test_gate_series.cpp)
mkbench_test(test_clock_file LABEL host LIBS mkbench_cli mkbench_input_cases SOURCES test_clock_file.cpp test_resume.cpp test_run_folder.cpp)
foreach(name test_compare test_evidence_verify test_gate test_verify)
  mkbench_python_test(${name} CLASSES TIMEOUT 200 ENVIRONMENT "BINARY_UNDER_TEST=$<TARGET_FILE:mkbench>"
    "PLUGINS=${CMAKE_CURRENT_BINARY_DIR}/plugins")
endforeach()
