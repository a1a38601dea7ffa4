// The model hub's local cache: from "Org/Name" or "Org/Name@REVISION" to a snapshot folder. Nothing
// is fetched here.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace mkbench {

struct HubName {
  std::string id;                 // "Org/Name"
  std::string revision = "main";  // a branch, a tag or a commit id
};

// nullopt if `text` is not of the form Org/Name or Org/Name@REVISION.
std::optional<HubName> parse_hub_name(const std::string& text);

// The name of a hub model's folder in a cache and of its references' folder: "models--Org--Name".
std::string hub_folder_name(const std::string& id);

struct HubSnapshot {
  std::filesystem::path folder;
  std::string commit;  // name of the folder, as a rule 40 hex digits
};

// The snapshot in the first cache that has it. The caches are those of the hub's client:
// HF_HUB_CACHE, HUGGINGFACE_HUB_CACHE, HF_HOME/hub, XDG_CACHE_HOME/huggingface/hub and
// ~/.cache/huggingface/hub. A commit id names its snapshot; any other revision is looked up in
// refs/. nullopt, with a reason for each cache added to `tried`, if no cache has the snapshot.
std::optional<HubSnapshot> find_hub_snapshot(const HubName& name, std::vector<std::string>& tried);

}  // namespace mkbench
