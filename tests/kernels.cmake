# tests of kernels
mkbench_test(test_partition LABEL host LIBS mkbench_references)
mkbench_test(test_host_twin_exchange LABEL host LIBS mkbench_host_twin Threads::Threads)
mkbench_test(test_host_twin LABEL host LIBS mkbench_host_twin Threads::Threads)
mkbench_test(test_host_twin_truth LABEL host LIBS mkbench_host_twin)
mkbench_test(test_plain_host LABEL host LIBS mkbench_plain CUDA::cudart)
mkbench_test(test_plain LABEL gpu LIBS mkbench_plain CUDA::cudart TIMEOUT 240)
mkbench_test(test_ring_layout LABEL host LIBS mkbench_references)
mkbench_test(test_ring_host LABEL host LIBS mkbench_ring CUDA::cudart)
