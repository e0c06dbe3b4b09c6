#pragma once

#include <cstddef>
#include <string>

namespace infini_train {

/// A file written beside its final place; Commit moves it there. Without Commit nothing is left, and what was there
/// before stays. Throws Error when a file cannot be made there or the disk is full.
class AtomicFile {
 public:
    explicit AtomicFile(const std::string& path);
    AtomicFile(const AtomicFile&) = delete;
    AtomicFile& operator=(const AtomicFile&) = delete;
    ~AtomicFile();

    void Append(const void* bytes, size_t size_bytes);
    /// Nothing can be appended after it.
    void Commit();

 private:
    [[noreturn]] void ThrowSystemError(const std::string& what) const;

    std::string path_;
    std::string temporary_path_;
    int file_ = -1;
    bool is_committed_ = false;
};

}  // namespace infini_train
