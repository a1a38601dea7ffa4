# tests of house
mkbench_python_test(test_house_checks)
mkbench_python_test(test_house_setup)
mkbench_python_test(test_house_report)
