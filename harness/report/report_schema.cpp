#include <type_traits>

#include "harness/report/report.h"
#include "references/base/json_fields.h"

namespace mkbench {
namespace {

using nlohmann::json;

json reference_to(std::string_view definition) {
  return {{"$ref", "#/$defs/" + std::string(definition)}};
}

json nullable(json schema) {
  return {{"anyOf", json::array({std::move(schema), {{"type", "null"}}})}};
}

template <typename T>
void define(json& definitions);

// The schema of one member's type; structs become definitions on first sight.
template <typename M>
json schema_of(json& definitions) {
  if constexpr (std::is_same_v<M, json>) {
    return {{"type", {"object", "null"}}};
  } else if constexpr (std::is_same_v<M, bool>) {
    return {{"type", "boolean"}};
  } else if constexpr (std::is_integral_v<M>) {
    return {{"type", "integer"}};
  } else if constexpr (std::is_same_v<M, double> || std::is_same_v<M, std::optional<double>> ||
                       std::is_same_v<M, Number>) {
    return {{"type", {"number", "null"}}};
  } else if constexpr (std::is_same_v<M, std::string>) {
    return {{"type", "string"}};
  } else if constexpr (std::is_enum_v<M>) {
    json& words = definitions[std::string(struct_name(Tag<M>()))]["enum"] = json::array();
    for (const M value : enum_values(Tag<M>())) words.push_back(std::string(enum_text(value)));
    return reference_to(struct_name(Tag<M>()));
  } else if constexpr (json_fields::kIsOptional<M>) {
    return nullable(schema_of<typename M::value_type>(definitions));
  } else if constexpr (json_fields::kIsVector<M>) {
    return {{"type", "array"}, {"items", schema_of<typename M::value_type>(definitions)}};
  } else {
    define<M>(definitions);
    return reference_to(struct_name(Tag<M>()));
  }
}

json object_schema() {
  return {{"type", "object"},
          {"properties", json::object()},
          {"required", json::array()},
          {"additionalProperties", false}};
}

template <typename T>
class Describer {
 public:
  Describer(json& definitions, json& object) : definitions_(definitions), object_(object) {}

  template <typename M, typename Owner>
  void field(const char* name, M Owner::*, const char* doc) {
    json schema = schema_of<M>(definitions_);
    schema["description"] = doc;
    add(name, std::move(schema));
    if constexpr (std::is_same_v<M, double> || std::is_same_v<M, std::optional<double>> ||
                  std::is_same_v<M, Number>) {
      object_["properties"][std::string(name) + "_reason"] = {
          {"type", "string"}, {"description", "why " + std::string(name) + " is null"}};
    }
    if constexpr (std::is_same_v<M, Number>) need_reason(name);
  }
  template <typename Body>
  void group(const char* name, const char* doc, Body body) {
    json inner = object_schema();
    inner["description"] = doc;
    Describer nested(definitions_, inner);
    body(nested);
    add(name, std::move(inner));
  }

 private:
  void add(const char* name, json schema) {
    object_["properties"][name] = std::move(schema);
    object_["required"].push_back(name);
  }
  // A number may be null only with a reason.
  void need_reason(const std::string& name) {
    object_["allOf"].push_back({{"if", {{"properties", {{name, {{"type", "null"}}}}}}},
                                {"then", {{"required", {name + "_reason"}}}}});
  }

  json& definitions_;
  json& object_;
};

template <typename T>
json describe_object(json& definitions) {
  json object = object_schema();
  Describer<T> describer(definitions, object);
  describe_fields(describer, Tag<T>());
  return object;
}

template <typename T>
void define(json& definitions) {
  const std::string name(struct_name(Tag<T>()));
  if (definitions.contains(name)) return;
  definitions[name] = nullptr;  // ends the recursion of a struct that holds itself
  json object = describe_object<T>(definitions);
  definitions[name] = std::move(object);
}

}  // namespace

json report_schema() {
  json definitions = json::object();
  json schema = describe_object<Report>(definitions);
  schema["$schema"] = "https://json-schema.org/draft/2020-12/schema";
  schema["$id"] = kReportSchemaId;
  schema["title"] =
      fmt::format("report.json of mkbench, version {}.{}", kReportSchemaMajor, kReportSchemaMinor);
  json identity = object_schema();
  identity["description"] = "what this file is";
  identity["properties"] = {
      {"id", {{"const", kReportSchemaId}}},
      {"version",
       {{"type", "string"},
        {"pattern", fmt::format("^{}\\.[0-9]+\\.[0-9]+$", kReportSchemaMajor)}}}};
  identity["required"] = {"id", "version"};
  schema["properties"]["schema"] = std::move(identity);
  schema["required"].push_back("schema");
  schema["properties"]["seal"] = {
      {"type", "object"},
      {"description",
       "for each part of the report, the first 16 digits of the sha256 over its values"},
      {"additionalProperties", {{"type", "string"}, {"pattern", "^[0-9a-f]{16}$"}}}};
  schema["required"].push_back("seal");
  schema["$defs"] = std::move(definitions);
  return schema;
}

}  // namespace mkbench
