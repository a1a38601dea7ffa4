// The folder under which a process publishes files that it holds in memory: links to
// /proc/<pid>/fd/N, which every process of this user can open and map while this process lives.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>

namespace mkbench {

// $TMPDIR/mkbench-<pid>-<n> (/tmp without TMPDIR), mode 0700. A copy of the object in a forked
// child removes nothing.
class SnapshotFolder {
 public:
  // Throws Error(kEnvUnfit) with errno's text where the folder cannot be made.
  SnapshotFolder();
  ~SnapshotFolder();
  SnapshotFolder(const SnapshotFolder&) = delete;
  SnapshotFolder& operator=(const SnapshotFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  // Adds a link `name` to an open descriptor, which must stay open as long as the folder is used.
  // Throws Error(kEnvUnfit).
  void link(const std::string& name, int descriptor);

 private:
  std::filesystem::path path_;
  pid_t pid_;
  int lock_ = -1;
};

// Removes the folders that this user's dead processes have left: SIGKILL lets no process clean up.
void remove_stale_snapshots();

}  // namespace mkbench
