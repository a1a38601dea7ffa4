# Judging and reporting: parity, statistics, report.json and what is printed of it.
mkbench_library(mkbench_judge
  SOURCES
    measure/sample.cpp
    measure/statistics.cpp
    parity/baseline_part.cpp
    parity/checks.cpp
    parity/findings.cpp
    parity/isolation.cpp
    parity/judge.cpp
    parity/judge_ratios.cpp
    parity/live.cpp
    parity/localise.cpp
    parity/localise_lag.cpp
    parity/ratchet.cpp
    parity/ratios.cpp
    parity/repeats.cpp
    parity/states.cpp
    parity/sweep.cpp
    parity/token_only.cpp
    report/aggregate.cpp
    report/junit.cpp
    report/render_markdown.cpp
    report/render_rows.cpp
    report/report_json.cpp
    report/report_schema.cpp
    report/verdict.cpp
    report/write_report.cpp
  PUBLIC mkbench_references nlohmann_json::nlohmann_json
  PRIVATE fmt::fmt)

# Prints the JSON Schema; its output is committed as reports/report.schema.json.
add_executable(mkbench_schema report/schema_main.cpp)
target_link_libraries(mkbench_schema PRIVATE mkbench_judge)
