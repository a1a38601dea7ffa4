#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "harness/report/readings.h"
#include "harness/report/render.h"

namespace mkbench {
namespace {

using nlohmann::json;

json number_or_null(const Number& n) { return n.value ? json(*n.value) : json(nullptr); }

json of_summary(const EngineReport& e, double Summary::*member) {
  return e.ms_per_tok ? json((*e.ms_per_tok).*member) : json(nullptr);
}

json of_interval(const EngineReport& e, double Interval::*member) {
  return e.ms_per_tok && e.ms_per_tok->ci ? json((*e.ms_per_tok->ci).*member) : json(nullptr);
}

json of_speedup(const CaseReport& c, const EngineReport& e, double Interval::*end) {
  const ComparisonReport* r = headline_ratio(c, e);
  if (r == nullptr || !r->speedup.value) return nullptr;
  if (end == nullptr) return *r->speedup.value;
  return r->ci ? json((*r->ci).*end) : json(nullptr);
}

json of_parity(const EngineReport& e, const std::function<json(const ParityReport&)>& value) {
  return e.parity ? value(*e.parity) : json(nullptr);
}

struct Column {
  const char* name;
  bool is_number;
  std::function<json(const Report&, const CaseReport&, const EngineReport&)> value;
};

// The list of flat columns, from which header, SQL table and every row are made.
const std::vector<Column>& columns() {
  using R = const Report&;
  using C = const CaseReport&;
  using E = const EngineReport&;
  static const std::vector<Column> list = {
      {"case_name", false, [](R, C c, E) { return json(c.name); }},
      {"model", false, [](R, C c, E) { return json(c.model); }},
      {"weights_sha256", false, [](R, C c, E) { return json(c.weights_sha256); }},
      {"n_prompt", true, [](R, C c, E) { return json(c.n_prompt); }},
      {"n_gen", true, [](R, C c, E) { return json(c.n_gen); }},
      {"depth", true, [](R, C c, E) { return json(c.depth); }},
      {"engine", false, [](R, C, E e) { return json(e.name); }},
      {"resolved_name", false, [](R, C, E e) { return json(e.resolved_name); }},
      {"role", false, [](R, C, E e) { return json(e.role); }},
      {"device", false, [](R, C, E e) { return json(e.device); }},
      {"verdict", false, [](R, C, E e) { return json(std::string(verdict_name(e.verdict))); }},
      {"samples", true, [](R, C, E e) { return json(e.samples.size()); }},
      {"processes", true,
       [](R, C, E e) { return e.ms_per_tok ? json(e.ms_per_tok->processes) : json(nullptr); }},
      {"tok_per_s", true, [](R, C, E e) { return number_or_null(e.tok_per_s); }},
      {"ms_per_tok_median", true, [](R, C, E e) { return of_summary(e, &Summary::median); }},
      {"ms_per_tok_mean", true, [](R, C, E e) { return of_summary(e, &Summary::mean); }},
      {"ms_per_tok_ci_low", true, [](R, C, E e) { return of_interval(e, &Interval::low); }},
      {"ms_per_tok_ci_high", true, [](R, C, E e) { return of_interval(e, &Interval::high); }},
      {"prefill_ms", true, [](R, C, E e) { return number_or_null(e.prefill_ms); }},
      {"ttft_ms", true, [](R, C, E e) { return number_or_null(e.ttft_ms); }},
      {"speedup", true, [](R, C c, E e) { return of_speedup(c, e, nullptr); }},
      {"speedup_ci_low", true, [](R, C c, E e) { return of_speedup(c, e, &Interval::low); }},
      {"speedup_ci_high", true, [](R, C c, E e) { return of_speedup(c, e, &Interval::high); }},
      {"speedup_verdict", false,
       [](R, C c, E e) {
         const ComparisonReport* r = headline_ratio(c, e);
         return r != nullptr && r->speedup.value ? json(r->verdict) : json(nullptr);
       }},
      {"share", true, [](R, C, E e) { return number_or_null(e.share); }},
      {"share_ci_low", true,
       [](R, C, E e) { return e.share_ci ? json(e.share_ci->low) : json(nullptr); }},
      {"share_ci_high", true,
       [](R, C, E e) { return e.share_ci ? json(e.share_ci->high) : json(nullptr); }},
      {"parity_strict_matched", true,
       [](R, C, E e) {
         return of_parity(e, [](const ParityReport& p) { return json(p.strict_matched); });
       }},
      {"parity_strict_steps", true,
       [](R, C, E e) {
         return of_parity(e, [](const ParityReport& p) { return json(p.strict_steps); });
       }},
      {"r_rms", true,
       [](R, C, E e) {
         return of_parity(
             e, [](const ParityReport& p) { return p.r_rms ? json(*p.r_rms) : json(nullptr); });
       }},
      {"receipts_checked", true, [](R, C, E e) { return json(e.receipts_checked); }},
      {"receipts_wrong", true, [](R, C, E e) { return json(e.receipts_wrong); }},
      {"reasons", false,
       [](R, C, E e) { return json(fmt::format("{}", fmt::join(e.reasons, "; "))); }},
      {"mkbench_version", false, [](R r, C, E) { return json(json_text(r.meta, {"version"})); }},
      {"git_sha", false, [](R r, C, E) { return json(json_text(r.meta, {"git_sha"})); }},
      {"run_started", false, [](R r, C, E) { return json(json_text(r.meta, {"started"})); }},
  };
  return list;
}

std::string dump(const json& j) { return j.dump(-1, ' ', false, json::error_handler_t::replace); }

// A cell of RFC 4180: quoted if it holds a comma, a quote or a line break.
std::string csv_cell(const json& j) {
  if (j.is_null()) return {};
  if (!j.is_string()) return dump(j);
  const std::string text = j.get<std::string>();
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + "\"";
}

std::string sql_value(const json& j) {
  if (j.is_null()) return "NULL";
  if (!j.is_string()) return dump(j);
  std::string quoted = "'";
  for (const char c : j.get<std::string>()) quoted += c == '\'' ? "''" : std::string(1, c);
  return quoted + "'";
}

void dump_into(const json& j, const std::string& indent, std::string& out) {
  const bool is_flat = j.is_primitive() || j.empty() ||
                       (j.is_array() && std::all_of(j.begin(), j.end(), [](const json& item) {
                          return item.is_primitive();
                        }));
  if (is_flat) {
    out += dump(j);
    return;
  }
  const std::string inner = indent + "  ";
  out += j.is_object() ? "{" : "[";
  const char* separator = "\n";
  for (auto it = j.begin(); it != j.end(); ++it) {
    out += separator + inner;
    if (j.is_object()) out += dump(json(it.key())) + ": ";
    dump_into(*it, inner, out);
    separator = ",\n";
  }
  out += "\n" + indent + (j.is_object() ? "}" : "]");
}

}  // namespace

FlatRows flatten(std::span<const Report> reports) {
  FlatRows flat;
  for (const Column& c : columns()) flat.columns.push_back({c.name, c.is_number});
  for (const Report& report : reports) {
    for (const CaseReport& c : report.cases) {
      for (const EngineReport& e : c.engines) {
        std::vector<json>& row = flat.rows.emplace_back();
        for (const Column& column : columns()) row.push_back(column.value(report, c, e));
      }
    }
  }
  return flat;
}

json row_object(const FlatRows& flat, size_t row) {
  json object = json::object();
  for (size_t i = 0; i < flat.columns.size(); ++i) object[flat.columns[i].name] = flat.rows[row][i];
  return object;
}

std::string render_csv(std::span<const Report> reports) {
  const FlatRows flat = flatten(reports);
  std::string text;
  for (size_t i = 0; i < flat.columns.size(); ++i) text += (i ? "," : "") + flat.columns[i].name;
  text += "\n";
  for (const auto& row : flat.rows) {
    for (size_t i = 0; i < row.size(); ++i) text += (i ? "," : "") + csv_cell(row[i]);
    text += "\n";
  }
  return text;
}

std::string render_sql(std::span<const Report> reports) {
  const FlatRows flat = flatten(reports);
  std::string names, table;
  for (size_t i = 0; i < flat.columns.size(); ++i) {
    const FlatColumn& c = flat.columns[i];
    names += (i ? ", " : "") + c.name;
    table += fmt::format("{}  {} {}", i ? ",\n" : "", c.name, c.is_number ? "REAL" : "TEXT");
  }
  std::string text = fmt::format("CREATE TABLE IF NOT EXISTS mkbench (\n{}\n);\n", table);
  for (const auto& row : flat.rows) {
    std::string values;
    for (size_t i = 0; i < row.size(); ++i) values += (i ? ", " : "") + sql_value(row[i]);
    text += fmt::format("INSERT INTO mkbench ({}) VALUES ({});\n", names, values);
  }
  return text;
}

std::string render_jsonl(std::span<const Report> reports) {
  const FlatRows flat = flatten(reports);
  std::string text;
  for (size_t row = 0; row < flat.rows.size(); ++row) text += dump(row_object(flat, row)) + "\n";
  return text;
}

std::string dump_readable(const json& j) {
  std::string out;
  dump_into(j, "", out);
  return out;
}

std::string resumed_lines(const Report& report) {
  if (!report.meta.is_object()) return "";
  const json all = report.meta.value("resumed", json::array());
  std::string text;
  for (const json& one : all.is_array() ? all : json::array()) {
    text += fmt::format(
        "\nresumed: {} of {} cases are from the run of {} that was interrupted at {} ({})\n",
        json_text(one, {"cases_taken_over"}), json_text(one, {"cases"}),
        json_text(one, {"started"}), json_text(one, {"interrupted"}), json_text(one, {"report"}));
  }
  return text;
}

bool is_cpu_report(const Report& report) {
  return json_text(report.environment, {"device"}).rfind("cpu", 0) == 0;
}

std::string json_text(const json& object, const std::vector<const char*>& path,
                      const std::string& fallback) {
  const json* at = &object;
  for (const char* key : path) {
    if (!at->is_object() || !at->contains(key)) return fallback;
    at = &(*at)[key];
  }
  if (at->is_string()) return at->get<std::string>();
  return at->is_number() ? dump(*at) : fallback;
}

std::string with_commas(int64_t n) {
  std::string text = std::to_string(n);
  const size_t first = n < 0 ? 1 : 0;
  for (size_t i = text.size(); i > first + 3; i -= 3) text.insert(i - 3, ",");
  return text;
}

}  // namespace mkbench
