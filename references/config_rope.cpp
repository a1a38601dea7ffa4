// The keys of a config.json that describe RoPE.
#include <array>

#include "references/config_fields.h"
#include "references/config_scan.h"

namespace mkbench {
namespace {

using nlohmann::json;

class RopeReader {
 public:
  RopeReader(const ConfigFields& fields, ConfigScan& scan) : fields_(fields), scan_(scan) {}

  // transformers 4 writes rope_theta at the top, 5 writes rope_parameters, some files have
  // rope_scaling. The best-known bug of loaders is a theta that silently becomes 10000, so all
  // sources must agree.
  void read() const {
    const json* parameters = fields_.find("rope_parameters");
    const json* scaling = fields_.find("rope_scaling");
    if (parameters != nullptr) check_object("rope_parameters", *parameters);
    if (scaling != nullptr) check_object("rope_scaling", *scaling);
    if (const json* factor = fields_.find("partial_rotary_factor"))
      check_partial_rotary("partial_rotary_factor", *factor);

    struct Source {
      const json* object;
      const char* shown;
    };
    const std::array<Source, 3> sources = {{{parameters, "rope_parameters.rope_theta"},
                                            {&fields_.object(), "rope_theta"},
                                            {scaling, "rope_scaling.rope_theta"}}};
    bool any = false;
    for (const Source& source : sources) {
      if (source.object == nullptr || !source.object->contains("rope_theta")) continue;
      any = true;
      if (const auto theta = fields_.number(*source.object, "rope_theta", source.shown, 1e12))
        take_theta(*theta, source.shown);
    }
    if (any) return;
    fields_.report(Severity::kFatal, "rope_theta", "a value", "absent",
                   "no rope_theta: looked for rope_parameters.rope_theta, rope_theta and "
                   "rope_scaling.rope_theta; a default would be a guess");
  }

 private:
  void take_theta(double theta, const char* shown) const {
    ModelConfig& config = scan_.config;
    if (config.rope_theta_key.empty()) {
      config.rope_theta = theta;
      config.rope_theta_key = shown;
    } else if (theta != config.rope_theta) {
      fields_.report(Severity::kFatal, shown,
                     fmt::format("{} as in {}", config.rope_theta, config.rope_theta_key),
                     fmt::format("{}", theta),
                     fmt::format("{} is {} but {} is {}", config.rope_theta_key, config.rope_theta,
                                 shown, theta));
    }
  }

  // Refuses an object that describes anything but plain RoPE, or mRoPE where the model has it.
  void check_object(const std::string& name, const json& rope) const {
    if (!rope.is_object()) return fields_.fatal(name, "null or an object", describe(rope));
    for (const auto& [key, value] : rope.items()) {
      const std::string shown = name + "." + key;
      if (key == "mrope_section") read_sections(value);
      if (key == "interleaved" || key == "mrope_interleaved")
        scan_.mrope_interleaved = value == true;
      const bool of_mrope =
          key == "mrope_section" || key == "interleaved" || key == "mrope_interleaved";
      if (value.is_null() || key == "rope_theta") continue;
      if (key == "rope_type" || key == "type") {
        if (value != "default") fields_.unsupported(shown, "'default'", describe(value));
      } else if (key == "partial_rotary_factor") {
        check_partial_rotary(shown, value);
      } else if (of_mrope && scan_.kind->mrope) {
        if (key == "mrope_section") check_sections(shown, value);
      } else {
        fields_.report(Severity::kUnsupported, name + "." + in_quotes(key, 60), "absent",
                       value.is_array() && value.size() <= 8 ? value.dump() : describe(value),
                       fmt::format("{} = {}: unsupported RoPE variant",
                                   name + "." + in_quotes(key, 60), describe(value)));
      }
    }
  }

  void read_sections(const json& value) const {
    scan_.mrope_section.clear();
    if (!value.is_array() || value.size() > 8) return;
    for (const json& item : value) {
      if (!item.is_number_unsigned() || item.get<uint64_t>() > 1024)
        return scan_.mrope_section.clear();
      scan_.mrope_section.push_back(item.get<int>());
    }
  }

  // The sections share out the head_dim / 2 frequencies among three rows of positions.
  void check_sections(const std::string& shown, const json& value) const {
    const int half = scan_.config.shape.head_dim / 2;
    if (scan_.mrope_section.size() == 3 && (half == 0 || scan_.mrope_sum() == half)) return;
    fields_.fatal(shown, fmt::format("three lengths with the sum head_dim / 2 = {}", half),
                  value.is_array() && value.size() <= 8 ? value.dump() : describe(value));
  }

  void check_partial_rotary(const std::string& shown, const json& value) const {
    if (!value.is_number() || value.get<double>() != 1.0)
      fields_.unsupported(shown, "1", describe(value));
  }

  const ConfigFields& fields_;
  ConfigScan& scan_;
};

}  // namespace

void read_rope(const ConfigFields& fields, ConfigScan& scan) { RopeReader(fields, scan).read(); }

}  // namespace mkbench
