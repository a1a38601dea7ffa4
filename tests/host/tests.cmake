# What runs in a host, and the real hosts.
mkbench_test(test_faulty_engine LABEL host LIBS mkbench_host SOURCES test_faulty_engine.cpp test_server.cpp)
mkbench_test(test_host_programs LABEL host LIBS mkbench_cli mkbench_host_cuda)
if(TARGET test_host_programs)
  target_compile_definitions(test_host_programs PRIVATE
    MKBENCH_HOST_CUDA="$<TARGET_FILE:mkbench-host-cuda>" MKBENCH_HOST_TORCH="$<TARGET_FILE:mkbench-host-torch>")
  add_dependencies(test_host_programs mkbench-host-cuda mkbench-host-torch)
endif()
