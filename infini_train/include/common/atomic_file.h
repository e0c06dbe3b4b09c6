#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace infini_train {

/// Removes the temporary files that killed writers of this path left; those of processes that are still writing stay.
void RemoveAbandonedFiles(const std::string& path);

/// A file written beside its final place, as "PATH.tmp.PID"; Commit moves it there. Without Commit nothing is left, and
/// what was there before stays. A process that is killed leaves its temporary file; the next AtomicFile of the same
/// path removes it.
///
/// Throws Error when a file cannot be made there or the disk is full.
class AtomicFile {
 public:
    explicit AtomicFile(const std::string& path);
    AtomicFile(const AtomicFile&) = delete;
    AtomicFile& operator=(const AtomicFile&) = delete;
    ~AtomicFile();

    const std::string& path() const { return path_; }

    void Append(const void* bytes, size_t size_bytes);
    /// Over bytes that are there already, all of them.
    void Overwrite(int64_t offset, const void* bytes, size_t size_bytes);
    /// Brings all of it to the disk, still under its temporary name; nothing can be written any more. For files that
    /// must appear together: finish all, then commit all.
    void Finish();
    /// Finishes and gives the file its name.
    void Commit();

 private:
    void Write(int64_t offset, const void* bytes, size_t size_bytes);
    [[noreturn]] void ThrowSystemError(const std::string& what) const;

    std::string path_;
    std::string temporary_path_;
    int file_ = -1;
    int64_t size_bytes_ = 0;
    bool is_finished_ = false;
    bool is_committed_ = false;
};

}  // namespace infini_train
