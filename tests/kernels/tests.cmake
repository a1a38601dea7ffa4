# tests of kernels
mkbench_test(test_partition LABEL host LIBS mkbench_references)
mkbench_test(test_written_rows LABEL host LIBS mkbench_references)
mkbench_test(test_host_twin_exchange LABEL host LIBS mkbench_host_twin Threads::Threads)
mkbench_test(test_host_twin LABEL host LIBS mkbench_host_twin Threads::Threads)
mkbench_test(test_host_twin_truth LABEL host LIBS mkbench_host_twin)
mkbench_test(test_plain_host LABEL host LIBS mkbench_plain CUDA::cudart)
mkbench_test(test_plain LABEL gpu LIBS mkbench_plain CUDA::cudart TIMEOUT 240)
mkbench_test(test_plain_graph LABEL gpu LIBS mkbench_plain CUDA::cudart TIMEOUT 240)
mkbench_test(test_timeline_decode LABEL host LIBS mkbench_timeline)
mkbench_test(test_ring_layout LABEL host LIBS mkbench_references)
mkbench_test(test_ring_host LABEL host LIBS mkbench_ring CUDA::cudart)
mkbench_test(test_ring_parity LABEL host LIBS mkbench_references)
mkbench_test(test_ring_rows LABEL gpu LIBS mkbench_ring mkbench_launch CUDA::cudart)
mkbench_test(test_ring LABEL gpu LIBS mkbench_ring mkbench_plain CUDA::cudart TIMEOUT 300)
mkbench_test(test_ring_shapes LABEL gpu LIBS mkbench_ring mkbench_plain CUDA::cudart TIMEOUT 600)
mkbench_test(test_ring_state LABEL gpu LIBS mkbench_ring CUDA::cudart TIMEOUT 300)
mkbench_test(test_ring_standstill LABEL host LIBS mkbench_ring)
mkbench_test(test_hang_gpu LABEL gpu LIBS mkbench_ring mkbench_ring_delayed mkbench_plain_faults CUDA::cudart)
# Launches that never end: a process each.
foreach(kernel plain ring)
  add_test(NAME test_hang_gpu_endless_${kernel} COMMAND test_hang_gpu [endless-${kernel}]
           WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  set_tests_properties(test_hang_gpu_endless_${kernel} PROPERTIES LABELS gpu SKIP_RETURN_CODE 77 TIMEOUT 60
    RUN_SERIAL TRUE)
endforeach()
mkbench_test(test_prefill_host LABEL host LIBS mkbench_launch)
mkbench_test(test_prefill LABEL gpu LIBS mkbench_plain mkbench_launch TIMEOUT 300)
# Against a stand-in for CUDA's run-time, so it compiles the file itself and links no library of kernels.
mkbench_test(test_host_copies LABEL host LIBS mkbench_references Threads::Threads
  SOURCES test_host_copies.cpp ../../kernels/host_copies.cpp THREADS 2)
target_include_directories(test_host_copies PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
