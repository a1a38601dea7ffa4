# Runs at every build: writes the commit to ${OUTPUT}, and touches that file only if its text changes. A tree that
# scripts/remote.sh sent has no .git, but a file with "<commit> true" (uncommitted changes) or "<commit> false".
execute_process(COMMAND git -C ${SOURCE} rev-parse HEAD
  OUTPUT_VARIABLE sha OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
set(dirty false)
set(sent ${SOURCE}/.mkbench-remote/commit)
if(EXISTS ${sent})
  file(STRINGS ${sent} words LIMIT_COUNT 1)
  string(REGEX REPLACE " .*" "" sha "${words}")
  string(REGEX REPLACE ".* " "" dirty "${words}")
elseif(failed)
  set(sha unknown)
else()
  execute_process(COMMAND git -C ${SOURCE} status --porcelain --untracked-files=no
    OUTPUT_VARIABLE changes OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(changes)
    set(dirty true)
  endif()
endif()
string(CONCAT text "// Written by git_info.cmake.\n#pragma once\n"
  "inline constexpr char kGitSha[] = \"${sha}\";\n"
  "inline constexpr bool kGitDirty = ${dirty};\n")
set(old "")
if(EXISTS ${OUTPUT})
  file(READ ${OUTPUT} old)
endif()
if(NOT old STREQUAL text)
  file(WRITE ${OUTPUT} "${text}")
endif()
