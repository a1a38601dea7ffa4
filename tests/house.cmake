# tests of house
mkbench_python_test(test_house_checks)
mkbench_python_test(test_house_pages)
mkbench_python_test(test_house_setup)
mkbench_python_test(test_house_report)
mkbench_python_test(test_gpu_gate)
mkbench_python_test(test_update_ratchet)
mkbench_python_test(test_ratio_limits)
# Real git, apt-get, dpkg and pip on stand-in packages.
mkbench_python_test(test_bundle TIMEOUT 300)
mkbench_python_test(test_containers)
mkbench_python_test(test_remote TIMEOUT 300)
