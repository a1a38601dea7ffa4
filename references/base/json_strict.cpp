#include "references/base/json_strict.h"

#include <fmt/format.h>

#include <vector>

#include "references/base/error.h"
#include "references/base/file_form.h"
#include "references/base/one_line.h"
#include "references/base/printable.h"
#include "references/base/regular_file.h"

namespace mkbench {
namespace {

using nlohmann::json;

// Builds the document from nlohmann's parser events. The events show what nlohmann's DOM parser
// drops: the second of two equal keys, and the text of an integer that did not fit.
class StrictBuilder : public nlohmann::json_sax<json> {
 public:
  StrictBuilder(const std::string& where, const JsonLimits& limits)
      : where_(where), limits_(limits) {}

  json take() { return std::move(root_); }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(int64_t value) override { return add(value); }
  bool number_unsigned(uint64_t value) override { return add(value); }
  bool number_float(double value, const std::string& text) override {
    if (text.find_first_of(".eE") == std::string::npos)
      bad_input(where_, fmt::format("integer overflow: {} does not fit 64 bits{}",
                                    in_quotes(text, 40), place()));
    return add(value);
  }
  bool string(std::string& value) override { return add(std::move(value)); }
  // JSON text has no binary values.
  bool binary(json::binary_t& /*value*/) override { return false; }

  bool start_object(std::size_t /*size*/) override { return open(json::object()); }
  bool start_array(std::size_t /*size*/) override { return open(json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(std::string& name) override {
    if (++keys_ > limits_.keys) bad_input(where_, fmt::format("more than {} keys", limits_.keys));
    Level& level = levels_.back();
    if (level.container->contains(name)) {
      level.key.clear();
      level.has_key = false;
      bad_input(where_, "duplicate key " + in_quotes(name) + place());
    }
    level.key = std::move(name);
    level.has_key = true;
    return true;
  }

  bool parse_error(std::size_t position, const std::string& /*token*/,
                   const json::exception& error) override {
    // The message keeps the reason and drops the library's tag and line counting ("... column 3:
    // ").
    std::string_view reason = error.what();
    if (const size_t tag = reason.find("] "); tag != std::string_view::npos)
      reason.remove_prefix(tag + 2);
    if (const size_t column = reason.find(", column "); column != std::string_view::npos) {
      if (const size_t colon = reason.find(": ", column); colon != std::string_view::npos)
        reason.remove_prefix(colon + 2);
    }
    const std::string text = in_quotes(reason, 200);
    bad_input(where_, fmt::format("not JSON at byte {}: {}", position == 0 ? 0 : position - 1,
                                  text.substr(1, text.size() - 2)));
  }

 private:
  struct Level {
    json* container = nullptr;
    std::string key;
    bool has_key = false;
  };

  // The path of the open containers: " in 'a'.'b'[3]".
  std::string place() const {
    std::string text;
    for (const Level& level : levels_) {
      if (level.container->is_array()) {
        text += fmt::format("[{}]", level.container->size());
      } else if (level.has_key) {
        text += (text.empty() ? "" : ".") + in_quotes(level.key);
      }
    }
    return text.empty() ? " at the top level" : " in " + text;
  }

  json* put(json value) {
    if (++values_ > limits_.values)
      bad_input(where_, fmt::format("more than {} values{}", limits_.values, place()));
    if (levels_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    Level& level = levels_.back();
    if (level.container->is_array()) {
      level.container->push_back(std::move(value));
      return &level.container->back();
    }
    json& slot = (*level.container)[level.key];
    slot = std::move(value);
    return &slot;
  }
  bool add(json value) {
    put(std::move(value));
    return true;
  }
  bool open(json empty) {
    if (static_cast<int>(levels_.size()) >= limits_.depth)
      bad_input(where_, fmt::format("nested deeper than {} levels", limits_.depth));
    // The address of a container is stable while it is open: its parent grows only after it is
    // closed.
    json* container = put(std::move(empty));
    levels_.push_back({container, {}, false});
    return true;
  }
  bool close() {
    levels_.pop_back();
    return true;
  }

  const std::string& where_;
  const JsonLimits& limits_;
  json root_;
  std::vector<Level> levels_;
  size_t keys_ = 0;
  size_t values_ = 0;
};

}  // namespace

size_t find_invalid_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const size_t size = first_character(text.substr(at)).size;
    if (size == 0) return at;
    at += size;
  }
  return std::string_view::npos;
}

std::string in_quotes(std::string_view text, size_t max_bytes) {
  std::string out = "'";
  size_t at = 0;
  while (at < text.size() && out.size() <= max_bytes) {
    const size_t size = first_character(text.substr(at)).size;
    const size_t control = control_bytes(text, at);
    if (size == 0 || control > 0) {
      // A control character of two bytes is named by the second one, which is its code point.
      at += control == 2 ? 1 : 0;
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[at++]));
    } else {
      out += text.substr(at, size);
      at += size;
    }
  }
  if (at < text.size()) out += fmt::format("... ({} bytes)", text.size());
  return out + "'";
}

std::string describe(const json& value) {
  if (value.is_string()) return in_quotes(value.get_ref<const std::string&>());
  if (value.is_array()) return fmt::format("an array of {}", value.size());
  if (value.is_object()) return "an object";
  return value.dump();
}

json parse_json_strict(std::string_view text, const std::string& where, const JsonLimits& limits) {
  if (text.size() > limits.bytes)
    bad_input(where, fmt::format("{} bytes, at most {} are read", text.size(), limits.bytes));
  if (const std::string form = file_form(text.substr(0, kFormBytes)); !form.empty())
    bad_input(where, "wanted JSON; " + form);
  // nlohmann skips a BOM and takes NUL for the end of input.
  if (text.starts_with("\xef\xbb\xbf")) bad_input(where, "byte order mark at byte 0: remove it");
  if (const size_t at = find_invalid_utf8(text); at != std::string_view::npos)
    bad_input(where, fmt::format("not UTF-8 at byte {} (0x{:02x})", at,
                                 static_cast<unsigned>(static_cast<unsigned char>(text[at]))));
  if (const size_t at = text.find('\0'); at != std::string_view::npos)
    bad_input(where, fmt::format("NUL at byte {}: only spaces may pad JSON", at));
  StrictBuilder builder(where, limits);
  json::sax_parse(text.begin(), text.end(), &builder);
  return builder.take();
}

std::string read_small_file(const std::filesystem::path& path, size_t max_bytes) {
  const RegularFile file(path);
  if (file.size() > max_bytes)
    bad_input(file.path(), fmt::format("{} bytes, at most {} are read", file.size(), max_bytes));
  std::string text(static_cast<size_t>(file.size()), '\0');
  file.read_at(0, text.data(), text.size());
  return text;
}

json read_json_strict(const std::filesystem::path& path, const JsonLimits& limits) {
  return parse_json_strict(read_small_file(path, limits.bytes), path.string(), limits);
}

}  // namespace mkbench
