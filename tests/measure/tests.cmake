# Statistics, clocks, and the figures that follow from what was recorded.
mkbench_test(test_statistics LABEL host LIBS mkbench_measure SOURCES test_statistics.cpp test_two_level.cpp test_clocks.cpp)
mkbench_test(test_calibration LABEL host LIBS mkbench_measure)
# What Nsight's tools print.
mkbench_test(test_kernel_figures LABEL host LIBS mkbench_device)
