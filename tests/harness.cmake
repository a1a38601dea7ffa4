# The command line, the flow of a case, hosts and their parent.
mkbench_test(test_options LABEL host LIBS mkbench_cli SOURCES test_options.cpp test_command_options.cpp test_version_options.cpp)
mkbench_test(test_plan LABEL host LIBS mkbench_cli)
mkbench_test(test_recompute LABEL host LIBS mkbench_cli SOURCES test_recompute.cpp test_report_versions.cpp TIMEOUT 300)
mkbench_test(test_versions LABEL host LIBS mkbench_cli SOURCES test_versions.cpp test_gate_calibration.cpp test_gate_series.cpp)
mkbench_test(test_registry LABEL host LIBS mkbench_host_cuda mkbench_host_torch)
mkbench_test(test_calls LABEL host LIBS mkbench_wire)
mkbench_test(test_channel LABEL host LIBS mkbench_wire)
mkbench_test(test_case_flow LABEL host LIBS mkbench_cli SOURCES test_case_flow.cpp test_case_flow_runs.cpp
             test_block_conditions.cpp test_ceiling_flow.cpp test_timed_steps.cpp test_forecast.cpp test_late_ids.cpp
             test_launches.cpp test_trials.cpp test_host_parts.cpp test_replication.cpp)
mkbench_test(test_faulty_engine LABEL host LIBS mkbench_host)
mkbench_test(test_host_process LABEL host LIBS mkbench_cli WAITS)
mkbench_test(test_post_mortem LABEL host LIBS mkbench_cli mkbench_input_cases WAITS)
mkbench_test(test_hosts LABEL host LIBS mkbench_cli SOURCES test_hosts.cpp test_host_calls.cpp)
mkbench_test(test_machine LABEL host LIBS mkbench_cli mkbench_device)

# Hosts of the host twin, in this process and as a program that needs neither CUDA nor libtorch.
if(TARGET mkbench_host_twin)
  add_executable(twin_host twin_host.cpp)
  target_link_libraries(twin_host PRIVATE mkbench_host mkbench_host_twin)
  mkbench_test(test_host_engine LABEL host LIBS mkbench_cli mkbench_host mkbench_host_twin
               SOURCES test_host_engine.cpp test_host_services.cpp)
  mkbench_test(test_soak LABEL host LIBS mkbench_flow mkbench_host_twin THREADS 2)
  target_compile_definitions(test_host_engine PRIVATE MKBENCH_TWIN_HOST="$<TARGET_FILE:twin_host>")
  add_dependencies(test_host_engine twin_host)
endif()

# The audit of bytes: its flow, ncu as a program, and the command with libraries.
mkbench_test(test_audit LABEL host LIBS mkbench_flow)
mkbench_test(test_ncu LABEL host LIBS mkbench_device mkbench_input_cases)
mkbench_python_test(test_audit_cli TIMEOUT 200 ENVIRONMENT "BINARY_UNDER_TEST=$<TARGET_FILE:mkbench>"
  "PLUGINS=${CMAKE_CURRENT_BINARY_DIR}/plugins")

# Nsight around an engine's process: what its tools print, and the command with programs in their place.
mkbench_test(test_kernel_figures LABEL host LIBS mkbench_device)
mkbench_python_test(test_profile TIMEOUT 200 ENVIRONMENT "BINARY_UNDER_TEST=$<TARGET_FILE:mkbench>"
  "NVTX_INJECTION=$<TARGET_FILE:mkbench_nvtx_injection>")

# The real hosts.
mkbench_test(test_host_programs LABEL host LIBS mkbench_cli mkbench_host_cuda)
if(TARGET test_host_programs)
  target_compile_definitions(test_host_programs PRIVATE
    MKBENCH_HOST_CUDA="$<TARGET_FILE:mkbench-host-cuda>" MKBENCH_HOST_TORCH="$<TARGET_FILE:mkbench-host-torch>")
  add_dependencies(test_host_programs mkbench-host-cuda mkbench-host-torch)
endif()

# The real programs.
foreach(name test_cli test_compare test_evidence test_evidence_verify test_gate test_history test_make_checkpoint test_page_cli test_replay test_told
             test_verify)
  mkbench_python_test(${name} CLASSES SLOW Baselines Made ReplayPlugins RefusedResume TIMEOUT 200 ENVIRONMENT "BINARY_UNDER_TEST=$<TARGET_FILE:mkbench>"
    "PLUGINS=${CMAKE_CURRENT_BINARY_DIR}/plugins")
endforeach()

set_tests_properties(test_told.Foretold PROPERTIES RUN_SERIAL TRUE TIMEOUT 400)

# Fleets: plans, folders, cards and store; on this machine, and over a real Slurm on loopback.
mkbench_python_test(test_fleet_plan)
mkbench_python_test(test_fleet_cells)
foreach(name test_fleet_cards test_fleet_page test_fleet_store)
  mkbench_python_test(${name} TIMEOUT 120)
endforeach()
mkbench_python_test(test_fleet CLASSES SLOW Dies Slow TIMEOUT 300 ENVIRONMENT "BINARY_UNDER_TEST=$<TARGET_FILE:mkbench>")
mkbench_python_test(test_fleet_slurm CLASSES SLOW Cancelled Refused TIMEOUT 900 ENVIRONMENT
  "BINARY_UNDER_TEST=$<TARGET_FILE:mkbench>")

# Models of the hub and of a user's own folder: fetched, captured, judged.
foreach(name test_fetch test_real_weights)
  mkbench_python_test(${name} CLASSES SLOW OwnFolder TIMEOUT 300 ENVIRONMENT "BINARY_UNDER_TEST=$<TARGET_FILE:mkbench>")
endforeach()

# Texts of ids, with a tokenizer.json and without.
mkbench_python_test(test_text CLASSES TIMEOUT 200 ENVIRONMENT "BINARY_UNDER_TEST=$<TARGET_FILE:mkbench>")

# The talker of Qwen3-TTS through the real command line.
mkbench_python_test(test_talker TIMEOUT 200 ENVIRONMENT "BINARY_UNDER_TEST=$<TARGET_FILE:mkbench>")

# Differences planted in a folder, named by inspect and refused by the loader.
mkbench_python_test(test_inspect TIMEOUT 120 ENVIRONMENT "BINARY_UNDER_TEST=$<TARGET_FILE:mkbench>"
  "LOAD_PROBE=$<TARGET_FILE:load_probe>")

# The fault corpus: host lanes run in CI, those of CUDA engines in `mkbench selftest --faults`.
mkbench_test(test_faults LABEL host LIBS mkbench_selftest mkbench_host mkbench_host_twin TIMEOUT 600 THREADS 8 SLOW)
mkbench_test(test_faults_gpu LABEL gpu LIBS mkbench_selftest mkbench_host_cuda
             CUDA::cudart TIMEOUT 600)
