# The rows of engines, and the examples of this folder.
mkbench_test(test_registry LABEL host LIBS mkbench_host_cuda mkbench_host_torch)
mkbench_python_test(test_step_decoder)
mkbench_python_test(test_triton_decoder CLASSES SLOW TritonDecoder TIMEOUT 300)
mkbench_python_test(test_extension_decoder CLASSES SLOW ExtensionDecoder TIMEOUT 300)
mkbench_python_test(test_python_engines CLASSES SLOW Misbehaviours Transformers TIMEOUT 300 ENVIRONMENT ${mkbench_plugin_environment})
mkbench_python_test(test_transformers_truth CLASSES SLOW Right Libraries Quantised DequantisedInPython TIMEOUT 600 ENVIRONMENT ${mkbench_plugin_environment})
