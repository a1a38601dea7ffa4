# Hosts and their parent.
mkbench_test(test_host_process LABEL host LIBS mkbench_cli WAITS
             SOURCES test_host_process.cpp test_host_lifetime.cpp)
mkbench_test(test_post_mortem LABEL host LIBS mkbench_cli mkbench_input_cases WAITS)
mkbench_test(test_hosts LABEL host LIBS mkbench_cli mkbench_input_cases SOURCES test_hosts.cpp test_host_calls.cpp)
mkbench_test(test_holdings LABEL host LIBS mkbench_hosts)
mkbench_test(test_machine LABEL host LIBS mkbench_cli mkbench_device)

# Hosts of the host twin, in this process and as a program that needs neither CUDA nor libtorch.
if(TARGET mkbench_host_twin)
  add_executable(twin_host hosts/twin_host.cpp)
  target_link_libraries(twin_host PRIVATE mkbench_host mkbench_host_twin)
  mkbench_test(test_host_engine LABEL host LIBS mkbench_cli mkbench_host mkbench_host_twin
               SOURCES test_host_engine.cpp test_host_services.cpp)
  target_compile_definitions(test_host_engine PRIVATE MKBENCH_TWIN_HOST="$<TARGET_FILE:twin_host>")
  add_dependencies(test_host_engine twin_host)
endif()

mkbench_python_test(test_cli_hosts CLASSES SLOW Standstills TIMEOUT 300 ENVIRONMENT ${mkbench_plugin_environment})
mkbench_python_test(test_hang CLASSES SLOW Foreign TIMEOUT 300 ENVIRONMENT ${mkbench_plugin_environment})
mkbench_python_test(test_hosts_gpu LABEL gpu TIMEOUT 300 ENVIRONMENT ${mkbench_plugin_environment})
