#include "harness/device/wsl.h"

#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <cctype>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>

#include "harness/device/file_text.h"
#include "harness/device/limited_output.h"

namespace mkbench {
namespace {

namespace fs = std::filesystem;

constexpr char kWindowsFolder[] = "usr/lib/wsl";
constexpr char kLibrary[] = "libcuda.so.1";

int version_of_kernel(const fs::path& root) {
  const std::string kernel =
      lower(text_of(root / "proc/version") + text_of(root / "proc/sys/kernel/osrelease"));
  const auto says = [&](const char* word) { return kernel.find(word) != std::string::npos; };
  // WSL2's kernel is a Linux that calls itself so; WSL1 imitates one.
  if (says("microsoft")) return says("wsl2") || says("microsoft-standard") ? 2 : 1;
  // A kernel of one's own has another name, and WSL2's way to the card.
  return is_there(root / "dev/dxg") && is_there(root / kWindowsFolder) ? 2 : 0;
}

// A file without its links; empty where it is not there.
std::string real_file(const fs::path& path) {
  std::error_code error;
  const fs::path real = fs::canonical(path, error);
  return error ? "" : real.string();
}

// A libcuda where drivers for Linux put it. NVIDIA's container tools put a link to Windows' there,
// which does not count.
std::string installed_libcuda(const fs::path& root) {
  const std::string windows = real_file(root / kWindowsFolder);
  for (const char* folder : {"usr/lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu/nvidia/current",
                             "lib/x86_64-linux-gnu", "usr/lib64", "usr/lib"}) {
    const std::string found = real_file(root / folder / kLibrary);
    if (!found.empty() && (windows.empty() || !found.starts_with(windows + "/"))) return found;
  }
  return "";
}

// The number behind the first of `words` that the text holds.
std::string number_behind(const std::string& text, std::initializer_list<std::string_view> words) {
  for (const std::string_view word : words) {
    const size_t at = text.find(word);
    if (at == std::string::npos) continue;
    const size_t begin = text.find_first_not_of(' ', at + word.size());
    if (begin == std::string::npos) continue;
    return text.substr(begin, text.find_first_not_of("0123456789.", begin) - begin);
  }
  return "";
}

// Writes the path of the libcuda that programs get to stdout; nothing without one.
void write_place_of_libcuda() {
  void* const library = dlopen(kLibrary, RTLD_LAZY | RTLD_LOCAL);
  link_map* place = nullptr;
  if (library == nullptr || dlinfo(library, RTLD_DI_LINKMAP, static_cast<void*>(&place)) != 0)
    return;
  const std::string_view path = place->l_name;
  if (write(STDOUT_FILENO, path.data(), path.size()) < 0) return;
}

}  // namespace

Wsl read_wsl(const fs::path& root) {
  Wsl wsl;
  wsl.version = version_of_kernel(root);
  if (wsl.version != 2) return wsl;
  const fs::path folder = root / kWindowsFolder / "lib";
  wsl.windows_libcuda = real_file(folder / kLibrary);
  wsl.nvidia_smi = real_file(folder / "nvidia-smi");
  wsl.linux_libcuda = installed_libcuda(root);
  return wsl;
}

void ask_windows_driver(Wsl& wsl, double seconds) {
  if (wsl.version != 2) return;
  const OutputLimits limits{.seconds = seconds};
  if (!wsl.nvidia_smi.empty()) read_smi_header(limited_output({wsl.nvidia_smi}, limits).text, wsl);
  wsl.loaded_libcuda = real_file(output_of_child(write_place_of_libcuda, limits).text);
}

void read_smi_header(const std::string& text, Wsl& wsl) {
  wsl.windows_driver = number_behind(text, {"Driver Version:", "KMD Version:"});
  wsl.windows_cuda = number_behind(text, {"CUDA Version:", "CUDA UMD Version:"});
}

std::string version_of_libcuda(const std::string& path) {
  const std::string name = fs::path(path).filename();
  const std::string begin = "libcuda.so.";
  if (!name.starts_with(begin)) return "";
  const std::string version = name.substr(begin.size());
  // WSL's own is libcuda.so.1.1.
  const size_t point = version.find('.');
  const bool is_driver = std::isdigit(static_cast<unsigned char>(version[0])) != 0 && point >= 3 &&
                         point != std::string::npos;
  return is_driver ? version : "";
}

nlohmann::json to_json(const Wsl& wsl) {
  return {{"version", wsl.version},
          {"windows_libcuda", wsl.windows_libcuda},
          {"windows_driver", wsl.windows_driver},
          {"windows_cuda", wsl.windows_cuda},
          {"linux_libcuda", wsl.linux_libcuda},
          {"linux_driver", version_of_libcuda(wsl.linux_libcuda)},
          {"loaded_libcuda", wsl.loaded_libcuda}};
}

}  // namespace mkbench
