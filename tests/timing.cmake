# The faults of timing: libraries of tests/plugins, their table, and the run of both.

# mkbench_timing_faults(DEVICE SOURCE FAULT ...): a copy of one library for each fault, which its file name says.
function(mkbench_timing_faults device source)
  mkbench_plugin_example(timing_${device} ${source})
  target_link_libraries(timing_${device} PRIVATE Threads::Threads)
  set(folder ${CMAKE_CURRENT_BINARY_DIR}/plugins/timing-${device})
  set(copies)
  foreach(fault IN LISTS ARGN)
    list(APPEND copies COMMAND ${CMAKE_COMMAND} -E copy $<TARGET_FILE:timing_${device}> ${folder}/${fault}.so)
  endforeach()
  add_custom_command(TARGET timing_${device} POST_BUILD
    COMMAND ${CMAKE_COMMAND} -E make_directory ${folder} ${copies} VERBATIM)
endfunction()

set(mkbench_timing_faults sound sound_copy remembers_prompts remembers_inputs decodes_ahead defers_prefill few_bits
  no_norm part_of_the_head ids_later last_id_first pads spins uneven crashes slow_prefill wrong_then_hangs)
mkbench_timing_faults(cpu timing_faults.cpp ${mkbench_timing_faults} half_the_heads)
target_compile_options(timing_cpu PRIVATE -Wno-subobject-linkage)  # it includes naive_cpu.cpp
if(mkbench_architecture_count GREATER 1)
  set(CMAKE_CUDA_ARCHITECTURES 80-virtual)
endif()
mkbench_timing_faults(cuda timing_faults.cu ${mkbench_timing_faults})
set(CMAKE_CUDA_ARCHITECTURES ${MKBENCH_CUDA_ARCHITECTURES})

mkbench_test(test_timing_table LABEL host LIBS mkbench_selftest)
add_test(NAME test_timing_faults COMMAND mkbench selftest --timing --device cpu -q)
set_tests_properties(test_timing_faults PROPERTIES LABELS host TIMEOUT 300 PROCESSORS 2)
