#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "infini_train/src/checkpoint/manifest.h"

// The names in the folder of a run, DIR:
//   DIR/step_00000030               a complete checkpoint
//   DIR/step_00000030.old           the same, while another of that step takes its place; counts where that one is not
//   DIR/step_00000030.partial       one that is being written, or was when its run ended
//   DIR/step_00000030.gone.partial  one that is being removed

namespace infini_train::checkpoint {

/// "DIR/step_00000030"
std::string StepFolder(const std::string& run_folder, int64_t step);
/// Where the files of a checkpoint are written.
std::string PartialFolder(const std::string& run_folder, int64_t step);

bool IsPartial(const std::string& folder);
/// Logs when it cannot: disk space that stays taken is nothing to end a training for.
void RemoveFolder(const std::string& path);

/// What may be a checkpoint of a run.
struct StepEntry {
    int64_t step = 0;
    std::string path = {};
};
/// By step, the oldest first; for each step that has not ended as partial one entry.
std::vector<StepEntry> ListSteps(const std::string& run_folder);
/// Throws Error unless it is a complete checkpoint of that step, by CheckFiles.
void CheckStep(const StepEntry& entry);

/// The folder of a run as the one rank that changes it sees it. While it lives, no other process can have it.
class RunFolder {
 public:
    /// Makes the folder. Throws Error when it cannot, and when another run saves there.
    explicit RunFolder(const std::string& path);
    RunFolder(const RunFolder&) = delete;
    RunFolder& operator=(const RunFolder&) = delete;
    ~RunFolder();

    const std::string& path() const { return path_; }

    /// Removes what earlier runs began and did not complete, or completed and did not remove.
    void RemoveLeftovers() const;
    /// Makes a checkpoint of the files in PartialFolder(step), which other ranks have written: with it, it is there and
    /// on the disk, and takes the place of an older one of that step, which is there until then. Other files in the
    /// folder are removed. Throws Error when a file is not there or of another size: a rank does not see this folder.
    void Publish(const Manifest& manifest) const;
    /// Takes the names of the oldest complete checkpoints, but `keep` and that of `step`. keep 0: of none. Returns the
    /// folders to remove.
    std::vector<std::string> Expire(int keep, int64_t step) const;
    void RemovePartial(int64_t step) const;

 private:
    std::string path_;
    int lock_ = -1;
};

}  // namespace infini_train::checkpoint
