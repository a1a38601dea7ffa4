# The command line, and its commands through the real program.
mkbench_test(test_options LABEL host LIBS mkbench_cli mkbench_input_cases SOURCES test_options.cpp test_command_options.cpp test_version_options.cpp)
mkbench_test(test_plan LABEL host LIBS mkbench_cli mkbench_input_cases)
mkbench_test(test_tune LABEL host LIBS mkbench_cli)
foreach(name test_cli test_formats test_page_cli test_replay test_told)
  mkbench_python_test(${name} CLASSES SLOW Foretold Made ReplayPlugins TIMEOUT 200 ENVIRONMENT "BINARY_UNDER_TEST=$<TARGET_FILE:mkbench>"
    "PLUGINS=${CMAKE_CURRENT_BINARY_DIR}/plugins")
endforeach()
set_tests_properties(test_told.Foretold PROPERTIES RUN_SERIAL TRUE TIMEOUT 400)
mkbench_python_test(test_cli_doctor CLASSES TIMEOUT 200 ENVIRONMENT "BINARY_UNDER_TEST=$<TARGET_FILE:mkbench>")
mkbench_python_test(test_audit_cli TIMEOUT 200 ENVIRONMENT "BINARY_UNDER_TEST=$<TARGET_FILE:mkbench>"
  "PLUGINS=${CMAKE_CURRENT_BINARY_DIR}/plugins")
# Machines that lack something: 21 runs, some in mounts and control groups of their own.
mkbench_python_test(test_surroundings CLASSES SLOW Surroundings TIMEOUT 900 ENVIRONMENT
  "BINARY_UNDER_TEST=$<TARGET_FILE:mkbench>" "MKBENCH_TEST_PYTHON=${MKBENCH_PYTHON}")
# Runs that a signal or a full disk ends at a chosen call, found by a library that is loaded before libc.
add_library(mkbench_fault_at MODULE plugins/fault_at.cpp)
target_link_libraries(mkbench_fault_at PRIVATE mkbench_options ${CMAKE_DL_LIBS})
mkbench_python_test(test_ends CLASSES SLOW Hangup Terminate Interrupt Kill FullDisk Unread TIMEOUT 400 ENVIRONMENT
  "BINARY_UNDER_TEST=$<TARGET_FILE:mkbench>" "FAULT_AT=$<TARGET_FILE:mkbench_fault_at>")
# With programs in the place of Nsight's.
mkbench_python_test(test_profile TIMEOUT 200 ENVIRONMENT "BINARY_UNDER_TEST=$<TARGET_FILE:mkbench>"
  "NVTX_INJECTION=$<TARGET_FILE:mkbench_nvtx_injection>")
# Folders that are not Qwen3 in bf16: the talker of Qwen3-TTS, tensors of other types.
foreach(name test_talker test_stored_types)
  mkbench_python_test(${name} TIMEOUT 200 ENVIRONMENT "BINARY_UNDER_TEST=$<TARGET_FILE:mkbench>")
endforeach()
# Differences planted in a folder, named by inspect.
mkbench_python_test(test_inspect TIMEOUT 120 ENVIRONMENT "BINARY_UNDER_TEST=$<TARGET_FILE:mkbench>")

# With engines from elsewhere.
mkbench_python_test(test_soak_cli CLASSES SLOW Found TIMEOUT 900 ENVIRONMENT ${mkbench_plugin_environment})
mkbench_python_test(test_soak_gpu LABEL gpu TIMEOUT 300 ENVIRONMENT ${mkbench_plugin_environment})
mkbench_python_test(test_cli_clock TIMEOUT 200 ENVIRONMENT ${mkbench_plugin_environment})
mkbench_python_test(test_cli_missing CLASSES SLOW Cuda NarrowContainer TIMEOUT 200 ENVIRONMENT ${mkbench_plugin_environment})
mkbench_python_test(test_timeline_cli CLASSES TIMEOUT 200 ENVIRONMENT ${mkbench_plugin_environment})
mkbench_python_test(test_timeline_gpu LABEL gpu TIMEOUT 300 ENVIRONMENT ${mkbench_plugin_environment})
mkbench_python_test(test_launches_gpu LABEL gpu TIMEOUT 300 ENVIRONMENT ${mkbench_plugin_environment})
mkbench_python_test(test_new_engine CLASSES SLOW MoreRuns TIMEOUT 200 ENVIRONMENT ${mkbench_plugin_environment})
mkbench_python_test(test_new_engine_gpu LABEL gpu TIMEOUT 300 ENVIRONMENT ${mkbench_plugin_environment})
