// The keys of a config.json that describe RoPE.
#include <algorithm>
#include <array>
#include <iterator>

#include "references/config_fields.h"
#include "references/config_scan.h"

namespace mkbench {
namespace {

using nlohmann::json;

// Linear scaling has the first alone.
constexpr const char* kScalingKeys[] = {"factor", "low_freq_factor", "high_freq_factor",
                                        "original_max_position_embeddings"};

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
    if (parameters != nullptr && scaling != nullptr) check_agreement(*parameters, *scaling);
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
      if (source.object == nullptr || ConfigFields::find(*source.object, "rope_theta") == nullptr)
        continue;
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
    Rope& rope = scan_.config.rope;
    if (rope.theta_key.empty()) {
      rope.theta = theta;
      rope.theta_key = shown;
    } else if (theta != rope.theta) {
      fields_.report(
          Severity::kFatal, shown, fmt::format("{} as in {}", rope.theta, rope.theta_key),
          fmt::format("{}", theta),
          fmt::format("{} is {} but {} is {}", rope.theta_key, rope.theta, shown, theta));
    }
  }

  // Refuses an object that describes anything but plain RoPE, or what the family has beside it.
  void check_object(const std::string& name, const json& rope) const {
    if (!rope.is_object()) return fields_.fatal(name, "null or an object", describe(rope));
    const RopeScaling scaling = read_scaling(name, rope);
    for (const auto& [key, value] : rope.items()) {
      if (is_of_scaling(key, scaling)) continue;
      const std::string shown = name + "." + key;
      if (key == "mrope_section") read_sections(value);
      if (key == "interleaved" || key == "mrope_interleaved")
        scan_.mrope_interleaved = value == true;
      const bool of_mrope =
          key == "mrope_section" || key == "interleaved" || key == "mrope_interleaved";
      if (value.is_null() || key == "rope_theta" || key == "original_max_position_embeddings")
        continue;
      if (key == "factor" && value == 1.0) continue;
      if (key == "rope_type" || key == "type") {
        if (value != "default" && scaling == RopeScaling::kNone)
          fields_.unsupported(shown, std::string(rope_types(*scan_.family)), describe(value));
      } else if (key == "partial_rotary_factor") {
        check_partial_rotary(shown, value);
      } else if (of_mrope && scan_.family->mrope) {
        if (key == "mrope_section") check_sections(shown, value);
      } else {
        fields_.report(Severity::kUnsupported, name + "." + in_quotes(key, 60), "absent",
                       value.is_array() && value.size() <= 8 ? value.dump() : describe(value),
                       fmt::format("{} = {}: unsupported RoPE variant",
                                   name + "." + in_quotes(key, 60), describe(value)));
      }
    }
  }

  // transformers drops rope_parameters where rope_scaling is not empty.
  void check_agreement(const json& parameters, const json& scaling) const {
    const bool both = parameters.is_object() && scaling.is_object();
    if (!both || parameters.empty() || scaling.empty()) return;
    const auto has_theta = [](const json& object) {
      return ConfigFields::find(object, "rope_theta") != nullptr;
    };
    if (has_theta(parameters) && !has_theta(scaling) && !has_theta(fields_.object()))
      fields_.fatal("rope_scaling.rope_theta",
                    "that of rope_parameters, which transformers drops here", "absent");
    if (!scan_.family->scales_rope) return;
    for (const char* key : kScalingKeys) {
      const json *one = ConfigFields::find(parameters, key),
                 *other = ConfigFields::find(scaling, key);
      if (one == nullptr && other == nullptr) continue;
      if (one != nullptr && other != nullptr && *one == *other) continue;
      const std::string shown = std::string("rope_scaling.") + key;
      fields_.fatal(
          shown,
          (one != nullptr ? describe(*one) : "absent") + std::string(" as in rope_parameters"),
          other != nullptr ? describe(*other) : "absent");
    }
  }

  static bool is_of_scaling(const std::string& key, RopeScaling scaling) {
    const size_t own = scaling == RopeScaling::kNone     ? 0
                       : scaling == RopeScaling::kLinear ? 1
                                                         : std::size(kScalingKeys);
    return std::find(kScalingKeys, kScalingKeys + own, key) != kScalingKeys + own;
  }

  // Reads the scaling that an object asks for, kNone where it asks for none or the family has none.
  RopeScaling read_scaling(const std::string& name, const json& object) const {
    if (!scan_.family->scales_rope) return RopeScaling::kNone;
    const json* type = ConfigFields::find(object, "rope_type");
    if (type == nullptr) type = ConfigFields::find(object, "type");
    RopeScaling scaling = RopeScaling::kNone;
    for (const RopeScaling known : {RopeScaling::kLinear, RopeScaling::kLlama3}) {
      if (type != nullptr && *type == rope_type(known)) scaling = known;
    }
    if (scaling == RopeScaling::kNone) return scaling;
    Rope& rope = scan_.config.rope;
    rope.scaling = scaling;
    rope.factor = scaling_number(name, object, "factor", 1e6);
    if (scaling == RopeScaling::kLinear) return scaling;
    rope.low_freq_factor = scaling_number(name, object, "low_freq_factor", 1e6);
    rope.high_freq_factor = scaling_number(name, object, "high_freq_factor", 1e6);
    const double positions =
        scaling_number(name, object, "original_max_position_embeddings", 16'777'216);
    rope.original_positions = static_cast<int>(positions);
    if (rope.original_positions != positions)
      fields_.fatal(name + ".original_max_position_embeddings", "an integer",
                    fmt::format("{}", positions));
    // transformers prefers this key of the decoder's own object to that of the RoPE object.
    const json* preferred = fields_.find("original_max_position_embeddings");
    if (preferred != nullptr && *preferred != positions)
      fields_.fatal("original_max_position_embeddings",
                    fmt::format("{} as in {}", rope.original_positions, name),
                    describe(*preferred));
    if (rope.high_freq_factor <= rope.low_freq_factor)
      fields_.fatal(name + ".high_freq_factor",
                    fmt::format("above low_freq_factor {}", rope.low_freq_factor),
                    fmt::format("{}", rope.high_freq_factor));
    return scaling;
  }

  // 1 and a finding where the key is absent or holds no such number.
  double scaling_number(const std::string& name, const json& object, const char* key,
                        double max) const {
    const std::string shown = name + "." + key;
    if (ConfigFields::find(object, key) != nullptr)
      return fields_.number(object, key, shown, max).value_or(1);
    fields_.fatal(shown, "a number", "absent");
    return 1;
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
