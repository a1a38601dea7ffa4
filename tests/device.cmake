# Facts about the machine, the doctor, profiler ranges, the read-bandwidth ceiling.
mkbench_test(test_device LABEL host LIBS mkbench_device)
mkbench_test(test_roofline LABEL gpu LIBS mkbench_card CUDA::cudart)

# A profiler in miniature and the program that it watches.
add_library(mkbench_nvtx_injection SHARED nvtx_injection.cpp)
target_link_libraries(mkbench_nvtx_injection PRIVATE mkbench_options CUDA::nvtx3)
add_executable(nvtx_program nvtx_program.cpp)
target_link_libraries(nvtx_program PRIVATE mkbench_options CUDA::nvtx3)

mkbench_test(test_nvtx LABEL host LIBS mkbench_options)
target_compile_definitions(test_nvtx PRIVATE
  MKBENCH_NVTX_INJECTION="$<TARGET_FILE:mkbench_nvtx_injection>"
  MKBENCH_NVTX_PROGRAM="$<TARGET_FILE:nvtx_program>")
add_dependencies(test_nvtx mkbench_nvtx_injection nvtx_program)
