// Rows of the doctor, as its parts add them.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace mkbench {

// kNote: not as good as it could be, and nothing that mkbench needs.
enum class Finding { kFine, kNote, kWarning, kProblem };

// "ok", "note", "warning", "problem".
const char* finding_text(Finding finding);

struct DoctorItem {
  std::string topic;  // "driver", "GPU 0", ..
  Finding finding = Finding::kFine;
  std::string text;
  std::string what_to_do;  // empty when fine
};

nlohmann::json to_json(const std::vector<DoctorItem>& items);

// Appends items in the order in which they are shown.
class Items {
 public:
  explicit Items(std::vector<DoctorItem>& items) : items_(items) {}
  void fine(std::string topic, std::string text) {
    add(std::move(topic), Finding::kFine, std::move(text), "");
  }
  void note(std::string topic, std::string text, std::string what_to_do = {}) {
    add(std::move(topic), Finding::kNote, std::move(text), std::move(what_to_do));
  }
  void warning(std::string topic, std::string text, std::string what_to_do) {
    add(std::move(topic), Finding::kWarning, std::move(text), std::move(what_to_do));
  }
  void problem(std::string topic, std::string text, std::string what_to_do) {
    add(std::move(topic), Finding::kProblem, std::move(text), std::move(what_to_do));
  }

 private:
  void add(std::string topic, Finding finding, std::string text, std::string what_to_do) {
    items_.push_back({std::move(topic), finding, std::move(text), std::move(what_to_do)});
  }

  std::vector<DoctorItem>& items_;
};

// "31.4 GiB"
std::string gib(int64_t bytes);

}  // namespace mkbench
