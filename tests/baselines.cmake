# Baselines against HF's committed answers and the engine contract.
mkbench_test(test_eager LABEL host LIBS mkbench_baselines SOURCES test_eager.cpp eager_lanes.cpp graph_lane.cpp)
mkbench_test(test_eager_gpu LABEL gpu LIBS mkbench_baselines
             SOURCES test_eager_gpu.cpp eager_lanes.cpp graph_lane.cpp TIMEOUT 300)
