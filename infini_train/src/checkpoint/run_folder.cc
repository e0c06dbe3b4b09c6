#include "infini_train/src/checkpoint/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <system_error>

#include "glog/logging.h"

#include "infini_train/include/common/atomic_file.h"
#include "infini_train/include/common/error.h"
#include "infini_train/include/common/str_cat.h"

namespace infini_train::checkpoint {
namespace {

constexpr std::string_view kPrefix = "step_";
constexpr std::string_view kOld = ".old";
constexpr std::string_view kPartial = ".partial";
constexpr std::string_view kGone = ".gone.partial";

[[noreturn]] void ThrowSystemError(const std::string& path, const std::string& what, int error) {
    throw Error({.where = path, .what = StrCat(what, ": ", std::strerror(error)), .kind = Error::Kind::kRuntime});
}

/// A name that has moved is on the disk only with its folder.
void SyncFolder(const std::string& path) {
    const int folder = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0 || fsync(folder) != 0) {
        const int error = errno;
        if (folder >= 0) {
            close(folder);
        }
        ThrowSystemError(path, "cannot bring the folder to the disk", error);
    }
    close(folder);
}

void Rename(const std::string& from, const std::string& to) {
    if (std::rename(from.c_str(), to.c_str()) != 0) {
        ThrowSystemError(to, "cannot move " + from + " there", errno);
    }
}

bool IsThere(const std::string& path) {
    std::error_code none;
    return std::filesystem::exists(path, none);
}

std::string StepName(int64_t step) {
    char name[32] = {};
    std::snprintf(name, sizeof(name), "%s%08lld", kPrefix.data(), static_cast<long long>(step));
    return name;
}

/// "step_00000030" -> 30
std::optional<int64_t> StepOf(std::string_view name) {
    constexpr size_t kMaxDigits = 18;  // of an int64_t, whatever they are
    if (!name.starts_with(kPrefix) || name.size() > kPrefix.size() + kMaxDigits) {
        return std::nullopt;
    }
    const std::string digits(name.substr(kPrefix.size()));
    const bool is_number = !digits.empty() && digits.find_first_not_of("0123456789") == std::string::npos;
    const int64_t step = is_number ? std::atoll(digits.c_str()) : -1;
    return is_number && StepName(step) == name ? std::optional(step) : std::nullopt;
}

/// The names in a folder; none where there is no folder that can be read.
std::vector<std::string> NamesIn(const std::string& folder) {
    std::vector<std::string> names;
    std::error_code error;
    std::filesystem::directory_iterator entry(folder, error);
    for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
        names.push_back(entry->path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
}

bool IsComplete(const StepEntry& entry) {
    try {
        CheckStep(entry);
        return true;
    } catch (const Error&) {
        return false;
    }
}

/// It is no checkpoint from now on, and still to be removed.
std::string TakeName(const std::string& path) {
    std::string gone = path + std::string(kGone);
    RemoveFolder(gone);
    Rename(path, gone);
    return gone;
}

}  // namespace

std::string StepFolder(const std::string& run_folder, int64_t step) {
    return run_folder + "/" + StepName(step);
}

std::string PartialFolder(const std::string& run_folder, int64_t step) {
    return StepFolder(run_folder, step) + std::string(kPartial);
}

bool IsPartial(const std::string& folder) {
    return folder.ends_with(kPartial);
}

void RemoveFolder(const std::string& path) {
    std::error_code error;
    std::filesystem::remove_all(path, error);
    if (error) {
        LOG(WARNING) << path << ": cannot remove it: " << error.message();
    }
}

std::vector<StepEntry> ListSteps(const std::string& run_folder) {
    std::map<int64_t, std::string> path_of_step;
    for (const std::string& name : NamesIn(run_folder)) {
        const std::string_view plain =
            std::string_view(name).substr(0, name.size() - (name.ends_with(kOld) ? kOld.size() : 0));
        if (const std::optional<int64_t> step = StepOf(plain); step.has_value()) {
            path_of_step.emplace(*step, run_folder + "/" + name);  // a name comes before the same with .old
        }
    }
    std::vector<StepEntry> entries;
    for (const auto& [step, path] : path_of_step) {
        entries.push_back({.step = step, .path = path});
    }
    return entries;
}

void CheckStep(const StepEntry& entry) {
    const Manifest manifest = ReadManifest(entry.path);
    if (manifest.step != entry.step) {
        throw Error({.where = entry.path,
                     .what = "the manifest is of another step",
                     .got = StrCat(manifest.step),
                     .wanted = StrCat(entry.step)});
    }
    CheckFiles(entry.path, manifest);
}

RunFolder::RunFolder(const std::string& path) : path_(path) {
    std::error_code error;
    std::filesystem::create_directories(path_, error);
    lock_ = open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (lock_ < 0) {
        throw Error({.where = path_, .what = StrCat("cannot make the folder for checkpoints: ", std::strerror(errno))});
    }
    // A file system without locks on folders protects nobody, and that is all.
    const bool is_taken = flock(lock_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    const bool is_writable = access(path_.c_str(), W_OK) == 0;
    if (is_taken || !is_writable) {
        const int access_error = errno;
        close(lock_);
        throw Error({.where = path_,
                     .what = is_taken ? "another run saves its checkpoints there"
                                      : StrCat("cannot write checkpoints: ", std::strerror(access_error))});
    }
}

RunFolder::~RunFolder() {
    close(lock_);
}

void RunFolder::RemoveLeftovers() const {
    for (const std::string& name : NamesIn(path_)) {
        const std::string path = path_ + "/" + name;
        const bool is_ours = name.starts_with(kPrefix) && StepOf(name.substr(0, name.find('.'))).has_value();
        if (is_ours && name.ends_with(kPartial)) {
            RemoveFolder(path);
        } else if (is_ours && name.ends_with(kOld) && IsThere(path.substr(0, path.size() - kOld.size()))) {
            RemoveFolder(TakeName(path));
        }
    }
}

void RunFolder::Publish(const Manifest& manifest) const {
    const std::string partial = PartialFolder(path_, manifest.step);
    CheckFiles(partial, manifest);
    std::set<std::string> names;
    for (const ManifestFile& file : manifest.files) {
        names.insert(file.name);
    }
    for (const std::string& name : NamesIn(partial)) {
        if (!names.contains(name)) {
            RemoveFolder(partial + "/" + name);  // of a run that ended before
        }
    }
    AtomicFile file(partial + "/" + kManifestName);
    const std::string text = ToJson(manifest);
    file.Append(text.data(), text.size());
    file.Commit();

    const std::string folder = StepFolder(path_, manifest.step);
    const std::string old = folder + std::string(kOld);
    if (IsThere(folder)) {
        if (IsThere(old)) {
            RemoveFolder(TakeName(old));
        }
        Rename(folder, old);
    }
    Rename(partial, folder);
    SyncFolder(path_);
    if (IsThere(old)) {
        RemoveFolder(TakeName(old));
    }
}

std::vector<std::string> RunFolder::Expire(int keep, int64_t step) const {
    if (keep == 0) {
        return {};
    }
    std::vector<std::string> complete;
    for (const StepEntry& entry : ListSteps(path_)) {
        if (entry.step != step && IsComplete(entry)) {
            complete.push_back(entry.path);
        }
    }
    const size_t num_others = static_cast<size_t>(keep) - 1;
    std::vector<std::string> gone;
    for (size_t i = 0; i + num_others < complete.size(); ++i) {
        gone.push_back(TakeName(complete[i]));
    }
    return gone;
}

void RunFolder::RemovePartial(int64_t step) const {
    RemoveFolder(PartialFolder(path_, step));
}

}  // namespace infini_train::checkpoint
