#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace infini_train {

/// A regular file open for reading. Threads may read at the same time.
class ReadOnlyFile {
 public:
    /// Throws Error when there is no regular file that can be read.
    explicit ReadOnlyFile(const std::string& path);
    ReadOnlyFile(const ReadOnlyFile&) = delete;
    ReadOnlyFile& operator=(const ReadOnlyFile&) = delete;
    ~ReadOnlyFile();

    const std::string& path() const { return path_; }
    /// As it was when the file was opened.
    uint64_t size_bytes() const { return size_bytes_; }

    /// Copies exactly these bytes. Throws Error when the file ends before the last of them, or cannot be read.
    void Read(uint64_t offset, void* destination, size_t size_bytes) const;

 private:
    std::string path_;
    int file_ = -1;
    uint64_t size_bytes_ = 0;
};

}  // namespace infini_train
