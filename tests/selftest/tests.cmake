# The faults of timing: libraries of tests/plugins, their table, and the run of both.

# mkbench_library_copies(TARGET SOURCE FOLDER NAME ...): copies of one library, which its file name tells what to do.
function(mkbench_library_copies target source folder)
  mkbench_plugin_example(${target} ${source})
  target_link_libraries(${target} PRIVATE Threads::Threads)
  set(folder ${CMAKE_CURRENT_BINARY_DIR}/plugins/${folder})
  set(copies)
  foreach(name IN LISTS ARGN)
    list(APPEND copies COMMAND ${CMAKE_COMMAND} -E copy $<TARGET_FILE:${target}> ${folder}/${name}.so)
  endforeach()
  add_custom_command(TARGET ${target} POST_BUILD
    COMMAND ${CMAKE_COMMAND} -E make_directory ${folder} ${copies} VERBATIM)
endfunction()

set(mkbench_timing_faults sound sound_copy remembers_prompts remembers_inputs decodes_ahead defers_prefill few_bits
  no_norm part_of_the_head ids_later last_id_first pads spins uneven crashes slow_prefill wrong_then_hangs
  catches_up slow_logits)
mkbench_library_copies(timing_cpu timing_faults.cpp timing-cpu ${mkbench_timing_faults} half_the_heads)
set(mkbench_slowed sound sound_copy slow_1 slow_2 slow_5)
mkbench_library_copies(slowed_cpu slowed_cpu.cpp slowed-cpu ${mkbench_slowed} pace_1 pace_6)
foreach(library timing_cpu slowed_cpu)
  target_compile_options(${library} PRIVATE -Wno-subobject-linkage)  # they include naive_cpu.cpp
endforeach()
if(mkbench_architecture_count GREATER 1)
  set(CMAKE_CUDA_ARCHITECTURES 80-virtual)
endif()
mkbench_library_copies(timing_cuda timing_faults.cu timing-cuda ${mkbench_timing_faults})
mkbench_library_copies(slowed_cuda slowed_cuda.cpp slowed-cuda ${mkbench_slowed})
target_sources(slowed_cuda PRIVATE plugins/slowed_wait.cu)
target_compile_definitions(slowed_cuda PRIVATE EXPORTED_MAKER=plain_maker EXPORTED_CUDA=1)
target_link_libraries(slowed_cuda PRIVATE mkbench_plain CUDA::cudart)
set(CMAKE_CUDA_ARCHITECTURES ${MKBENCH_CUDA_ARCHITECTURES})

mkbench_test(test_timing_table LABEL host LIBS mkbench_selftest)
mkbench_test(test_acceptance LABEL host LIBS mkbench_selftest)
# Slow, and judged by real times, so it is left to .ci/long.
add_test(NAME test_timing_faults COMMAND mkbench selftest --timing --device cpu -q)
set_tests_properties(test_timing_faults PROPERTIES LABELS slow TIMEOUT 400 PROCESSORS 2)

# The fault corpus: host lanes run in CI, those of CUDA engines in `mkbench selftest --faults`.
mkbench_test(test_faults LABEL host LIBS mkbench_selftest mkbench_host mkbench_host_twin TIMEOUT 600 THREADS 8 SLOW)
mkbench_test(test_faults_gpu LABEL gpu LIBS mkbench_selftest mkbench_host_cuda
             CUDA::cudart TIMEOUT 600)
