# Processes that hold engines in Python.
mkbench_test(test_host_python LABEL host LIBS mkbench_cli mkbench_input_cases TIMEOUT 300 WAITS
             SOURCES test_host_python.cpp test_torch_decoder.cpp)
add_library(mkbench_fake_recorder MODULE scripts/fake_recorder.cpp)
add_dependencies(test_host_python mkbench_fake_recorder)
target_compile_definitions(test_host_python PRIVATE
  MKBENCH_FAKE_RECORDER="$<TARGET_FILE:mkbench_fake_recorder>"
  MKBENCH_PYTHON="${MKBENCH_PYTHON}" MKBENCH_SOURCE_DIR="${PROJECT_SOURCE_DIR}")

# Set-up, other machines and installing. test_bundle: real git, apt-get, dpkg and pip on stand-in packages.
mkbench_python_test(test_house_setup)
mkbench_python_test(test_offer TIMEOUT 120)
mkbench_python_test(test_gpu_gate)
mkbench_python_test(test_update_ratchet)
mkbench_python_test(test_bundle TIMEOUT 300)
mkbench_python_test(test_remote TIMEOUT 300)
mkbench_python_test(test_remote_tree CLASSES SLOW RealTree TIMEOUT 600 ENVIRONMENT ${mkbench_plugin_environment})
mkbench_python_test(test_install CLASSES SLOW WrongOwnBuild TIMEOUT 400 ENVIRONMENT "BINARY_UNDER_TEST=$<TARGET_FILE:mkbench>"
  "BUILD_UNDER_TEST=${PROJECT_BINARY_DIR}" "CMAKE=${CMAKE_COMMAND}" "NINJA=${CMAKE_MAKE_PROGRAM}"
  "CXX=${CMAKE_CXX_COMPILER}")

# Files of a report as others read them.
foreach(name test_report_files test_report_page test_page_head test_page_browser)
  mkbench_python_test(${name} TIMEOUT 240 ENVIRONMENT "MKBENCH_REPORT_EXAMPLE=$<TARGET_FILE:report_example>")
endforeach()

# Fleets: plans, folders, cards and store; on this machine, and over a real Slurm on loopback.
mkbench_python_test(test_fleet_plan)
mkbench_python_test(test_fleet_cells)
foreach(name test_fleet_cards test_fleet_page test_fleet_store)
  mkbench_python_test(${name} TIMEOUT 120)
endforeach()
mkbench_python_test(test_fleet CLASSES SLOW Dies Slow TIMEOUT 300 ENVIRONMENT "BINARY_UNDER_TEST=$<TARGET_FILE:mkbench>")
mkbench_python_test(test_fleet_slurm CLASSES SLOW Cancelled Refused TIMEOUT 900 ENVIRONMENT
  "BINARY_UNDER_TEST=$<TARGET_FILE:mkbench>")

# Models of the hub and of a user's own folder: fetched, captured, judged; texts of ids, with a tokenizer.json and without.
mkbench_python_test(test_synthetic_python TIMEOUT 300)
mkbench_python_test(test_hf_model)
mkbench_python_test(test_doctor_python CLASSES SLOW RealTorch TIMEOUT 300)
foreach(name test_fetch test_real_weights)
  mkbench_python_test(${name} CLASSES SLOW OwnFolder TIMEOUT 300 ENVIRONMENT "BINARY_UNDER_TEST=$<TARGET_FILE:mkbench>")
endforeach()
mkbench_python_test(test_text CLASSES TIMEOUT 200 ENVIRONMENT "BINARY_UNDER_TEST=$<TARGET_FILE:mkbench>")
foreach(name test_history test_make_checkpoint)
  mkbench_python_test(${name} CLASSES SLOW Made TIMEOUT 200 ENVIRONMENT "BINARY_UNDER_TEST=$<TARGET_FILE:mkbench>"
    "PLUGINS=${CMAKE_CURRENT_BINARY_DIR}/plugins")
endforeach()

# The talker's trunk, by vector and by id, against HF transformers: setup's Python has it, so nothing is skipped.
add_executable(trunk_probe scripts/trunk_probe.cpp)
target_link_libraries(trunk_probe PRIVATE mkbench_options mkbench_references mkbench_host_twin mkbench_baselines
  mkbench_plain mkbench_ring mkbench_plugin)
list(APPEND mkbench_plugin_environment "TRUNK_PROBE=$<TARGET_FILE:trunk_probe>" "ENGINES=${PROJECT_BINARY_DIR}/engines")
mkbench_python_test(test_talker_trunk TIMEOUT 300 ENVIRONMENT ${mkbench_plugin_environment})
mkbench_python_test(test_talker_trunk_gpu LABEL gpu TIMEOUT 300 ENVIRONMENT ${mkbench_plugin_environment})
