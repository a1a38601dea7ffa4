# Facts about the machine, the doctor, profiler ranges, the read-bandwidth ceiling.
mkbench_test(test_cuda_lanes LABEL host LIBS mkbench_device)
mkbench_test(test_device LABEL host LIBS mkbench_device)
mkbench_test(test_doctor LABEL host LIBS mkbench_device mkbench_input_cases SOURCES test_doctor.cpp test_host_machine.cpp test_python_facts.cpp)
mkbench_test(test_ncu LABEL host LIBS mkbench_device mkbench_input_cases)
mkbench_test(test_program_output LABEL host LIBS mkbench_device WAITS)
mkbench_test(test_read_pattern LABEL host LIBS mkbench_device)
mkbench_test(test_step_reader LABEL gpu LIBS mkbench_ceiling CUDA::cudart)

# The card while an engine is timed, with a libnvidia-ml of the test's own.
add_library(mkbench_fake_nvml SHARED device/fake_nvml.cpp)
target_link_libraries(mkbench_fake_nvml PRIVATE mkbench_options)
set_target_properties(mkbench_fake_nvml PROPERTIES OUTPUT_NAME nvidia-ml SOVERSION 1
  LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/fake_nvml)
mkbench_test(test_telemetry LABEL host LIBS mkbench_cli mkbench_fake_nvml)
mkbench_test(test_absent_card LABEL host LIBS mkbench_cli mkbench_fake_nvml mkbench_ring CUDA::cudart)

# A profiler in miniature and the program that it watches.
add_library(mkbench_nvtx_injection SHARED device/nvtx_injection.cpp)
target_link_libraries(mkbench_nvtx_injection PRIVATE mkbench_options CUDA::nvtx3)
add_executable(nvtx_program device/nvtx_program.cpp)
target_link_libraries(nvtx_program PRIVATE mkbench_measure CUDA::nvtx3)

mkbench_test(test_nvtx LABEL host LIBS mkbench_options)
target_compile_definitions(test_nvtx PRIVATE
  MKBENCH_NVTX_INJECTION="$<TARGET_FILE:mkbench_nvtx_injection>"
  MKBENCH_NVTX_PROGRAM="$<TARGET_FILE:nvtx_program>")
add_dependencies(test_nvtx mkbench_nvtx_injection nvtx_program)

# The recorder of launches with a libcupti of the test's own.
if(MKBENCH_CUPTI_INCLUDE)
  add_library(mkbench_fake_cupti SHARED device/fake_cupti.cpp)
  target_link_libraries(mkbench_fake_cupti PRIVATE mkbench_options)
  target_include_directories(mkbench_fake_cupti SYSTEM PUBLIC ${MKBENCH_CUPTI_INCLUDE})
  set_target_properties(mkbench_fake_cupti PROPERTIES OUTPUT_NAME cupti SOVERSION ${CUDAToolkit_VERSION_MAJOR}
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/fake_cupti)
  mkbench_test(test_launch_recorder LABEL host LIBS mkbench_recorder mkbench_fake_cupti CUDA::cudart)
endif()
