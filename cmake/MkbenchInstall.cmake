# What `cmake --install` and the wheel hold. One folder, lib/mkbench (in a wheel the package itself), has the programs
# side by side, the exported engines, and the data under the paths of the source tree, where
# references/base/data_root.h finds them. Included last, because it names targets of all folders.
#
# A file that mkbench reads at run time is added here, and found through data_root().
set(MKBENCH_DATA
  LICENSE
  baselines/hf_decoder.py
  baselines/hf_static_decoder.py
  baselines/host_layers.py
  baselines/stated_values.py
  baselines/step_reads.py
  baselines/stored_awq.py
  baselines/stored_bitsandbytes.py
  baselines/stored_compressed.py
  baselines/stored_fp8.py
  baselines/stored_gptq.py
  baselines/stored_parts.py
  baselines/stored_weights.py
  references/decoder.py
  references/engine_abi.h
  references/step_decoder.py
  references/step_engine.h
  references/model/shape.h
  references/model/published.h
  references/model/weights.cpp
  reports/ratchet.json
  # The packages that mkbench fleet and mkbench fetch install on their first call.
  scripts/requirements/fleet.txt
  scripts/requirements/smollm2-135m.txt
  # Examples of engines, to start from.
  tests/plugins/foreign_decoder.h
  tests/plugins/naive_cpu.cpp
  tests/plugins/naive_cuda.cu
  tests/plugins/step_cpu.cpp)
# Programs of scripts/ that mkbench starts, those that a user starts for a model (docs/real-weights.md), and what they
# import: tests/scripts/test_install.py compares this list with the imports.
set(MKBENCH_SCRIPTS
  capture_reference.py chart_files.py checkpoint_format.py compile_step.py doctor_python.py exit_codes.py fetch_model.py fleet.py
  fleet_cards.py
  fleet_cells.py fleet_checks.py fleet_gpus.py fleet_page.py fleet_plan.py fleet_rows.py fleet_store.py fleet_submit.py
  fleet_worker.py history.py host.py host_surroundings.py hub_cache.py needed_memory.py nvtx_ranges.py page_charts.py page_tables.py pinned_wheels.py
  drift.py plot_history.py plot_report.py hf_model.py reference_prompts.py reference_steps.py report_file.py report_page.py shape_table.py
  smollm2.py sqlite_store.py synthetic_checkpoint.py text_tables.py token_texts.py torch_decoder.py train_tiny.py whole_file.py)
list(TRANSFORM MKBENCH_SCRIPTS PREPEND scripts/)

if(MKBENCH_WHEEL)
  set(mkbench_root .)
  # CMake finds the prefix by the number of folders in this path, and would count the "." of "./cmake".
  set(mkbench_package_folder cmake)
  set(mkbench_share ${SKBUILD_DATA_DIR}/share)
  # From the package's folder to the packages beside it: libtorch, and CUDA 13's libraries or CUDA 12's.
  set(mkbench_beside torch/lib nvidia/cu13/lib nvidia/cuda_runtime/lib nvidia/cuda_cupti/lib)
  list(TRANSFORM mkbench_beside PREPEND "$ORIGIN/../" OUTPUT_VARIABLE mkbench_rpath)
  list(TRANSFORM mkbench_beside PREPEND "$ORIGIN/../../" OUTPUT_VARIABLE mkbench_engines_rpath)
else()
  set(mkbench_root lib/mkbench)
  set(mkbench_package_folder lib/mkbench/cmake)
  set(mkbench_share share)
endif()

get_property(mkbench_exported_engines GLOBAL PROPERTY mkbench_exported_engines)
set(mkbench_programs mkbench mkbench-all mkbench-host-cuda mkbench-host-torch mkbench_python_recorder)
if(MKBENCH_WHEEL)
  set_target_properties(${mkbench_programs} PROPERTIES INSTALL_RPATH "${mkbench_rpath}")
  set_target_properties(${mkbench_exported_engines} PROPERTIES INSTALL_RPATH "${mkbench_engines_rpath}")
else()
  set_target_properties(${mkbench_programs} ${mkbench_exported_engines} PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)
endif()

list(REMOVE_ITEM mkbench_programs mkbench)
install(TARGETS mkbench EXPORT mkbench RUNTIME DESTINATION ${mkbench_root})
install(TARGETS ${mkbench_programs} RUNTIME DESTINATION ${mkbench_root} LIBRARY DESTINATION ${mkbench_root})
install(TARGETS ${mkbench_exported_engines} LIBRARY DESTINATION ${mkbench_root}/engines)
foreach(file IN LISTS MKBENCH_DATA MKBENCH_SCRIPTS)
  get_filename_component(folder ${file} DIRECTORY)
  install(FILES ${PROJECT_SOURCE_DIR}/${file} DESTINATION ${mkbench_root}/${folder})
endforeach()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/references/data DESTINATION ${mkbench_root}/references)
# scripts/checkpoint_format.py reads them.
install(DIRECTORY ${PROJECT_SOURCE_DIR}/references/model/families DESTINATION ${mkbench_root}/references/model)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/scripts/page ${PROJECT_SOURCE_DIR}/scripts/templates DESTINATION ${mkbench_root}/scripts)

# find_package(mkbench): mkbench::engine_abi, and the program as mkbench::mkbench.
add_library(mkbench_engine_abi INTERFACE)
target_include_directories(mkbench_engine_abi INTERFACE $<INSTALL_INTERFACE:${mkbench_root}>)
set_target_properties(mkbench_engine_abi PROPERTIES EXPORT_NAME engine_abi)
include(CMakePackageConfigHelpers)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/mkbenchConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(TARGETS mkbench_engine_abi EXPORT mkbench)
install(EXPORT mkbench NAMESPACE mkbench:: FILE mkbenchConfig.cmake DESTINATION ${mkbench_package_folder})
install(FILES ${PROJECT_BINARY_DIR}/mkbenchConfigVersion.cmake DESTINATION ${mkbench_package_folder})

# The manual page, which help2man makes of --help.
find_program(MKBENCH_HELP2MAN help2man DOC "Makes the manual page; without it none is installed")
if(MKBENCH_HELP2MAN)
  set(mkbench_man_page ${PROJECT_BINARY_DIR}/mkbench.1)
  add_custom_command(OUTPUT ${mkbench_man_page}
    COMMAND ${MKBENCH_HELP2MAN} --no-info --name "judge and time single-kernel LLM decoders" --output ${mkbench_man_page}
      $<TARGET_FILE:mkbench>
    DEPENDS mkbench VERBATIM)
  install(FILES ${mkbench_man_page} DESTINATION ${mkbench_share}/man/man1)
else()
  message(STATUS "help2man not found: no manual page is made")
endif()
# Everything that an installation needs.
add_custom_target(mkbench_package ALL DEPENDS mkbench ${mkbench_man_page})

if(NOT MKBENCH_WHEEL)
  # The program resolves this link before it looks for the files beside it.
  install(CODE [[
    set(bin "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}/bin")
    file(MAKE_DIRECTORY "${bin}")
    file(CREATE_LINK ../lib/mkbench/mkbench "${bin}/mkbench" SYMBOLIC)
    message(STATUS "Installing: ${bin}/mkbench")]])
endif()
