#include "infini_train/include/common/atomic_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "glog/logging.h"

#include "infini_train/include/common/error.h"
#include "infini_train/include/common/str_cat.h"

namespace infini_train {
namespace {

constexpr size_t kMaxWriteBytes = size_t{1} << 30;  // Linux writes less than 2 GiB a call
constexpr std::string_view kTemporaryMark = ".tmp.";

std::string FolderOf(const std::string& path) {
    const std::string folder = std::filesystem::path(path).parent_path().string();
    return folder.empty() ? "." : folder;
}

/// Removes a temporary file that nobody writes. Whoever writes one holds its lock, which ends with the process however
/// that ends, and which the process numbers of other hosts and containers cannot confuse. On a file system without
/// locks nothing is removed.
void RemoveIfAbandoned(const std::string& temporary_path) {
    const int file = open(temporary_path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (file < 0) {
        return;
    }
    struct stat opened = {};
    struct stat named = {};
    // Meanwhile the name may be that of another file, or of none. Under the lock it cannot become so.
    if (flock(file, LOCK_EX | LOCK_NB) == 0 && fstat(file, &opened) == 0 && S_ISREG(opened.st_mode) &&
        lstat(temporary_path.c_str(), &named) == 0 && named.st_dev == opened.st_dev && named.st_ino == opened.st_ino) {
        unlink(temporary_path.c_str());
    }
    close(file);
}

/// A new file with its lock held; -1 and errno when there can be none.
int MakeLocked(const std::string& temporary_path) {
    for (;;) {
        const int file = open(temporary_path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (file < 0) {
            return -1;
        }
        while (flock(file, LOCK_EX) != 0 && errno == EINTR) {
        }
        struct stat status = {};
        // Another writer of this path may have found and removed it before it was locked.
        if (fstat(file, &status) != 0 || status.st_nlink > 0) {
            return file;
        }
        close(file);
    }
}

}  // namespace

void RemoveAbandonedFiles(const std::string& path) {
    const std::string prefix = StrCat(std::filesystem::path(path).filename().string(), kTemporaryMark);
    std::error_code error;
    std::filesystem::directory_iterator entry(FolderOf(path), error);
    for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
        const std::string name = entry->path().filename().string();
        if (name.starts_with(prefix) && name.size() > prefix.size() &&
            name.find_first_not_of("0123456789", prefix.size()) == std::string::npos) {
            RemoveIfAbandoned(entry->path().string());
        }
    }
}

AtomicFile::AtomicFile(const std::string& path) : path_(path), temporary_path_(StrCat(path, kTemporaryMark, getpid())) {
    struct stat status = {};
    // The move at the end would put a file in the place of a device's name.
    if (stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) {
        throw Error({.where = path, .what = "cannot write: there is something that is not a regular file"});
    }
    RemoveAbandonedFiles(path);
    file_ = MakeLocked(temporary_path_);
    if (file_ < 0) {
        throw Error({.where = path, .what = StrCat("cannot make ", temporary_path_, ": ", std::strerror(errno))});
    }
}

AtomicFile::~AtomicFile() {
    if (!is_committed_) {
        unlink(temporary_path_.c_str());
    }
    close(file_);
}

void AtomicFile::Append(const void* bytes, size_t size_bytes) {
    Write(size_bytes_, bytes, size_bytes);
    size_bytes_ += static_cast<int64_t>(size_bytes);
}

void AtomicFile::Overwrite(int64_t offset, const void* bytes, size_t size_bytes) {
    CHECK(offset >= 0 && static_cast<int64_t>(size_bytes) <= size_bytes_ - offset)
        << path_ << ": bytes from " << offset << ", " << size_bytes << " of them, of " << size_bytes_;
    Write(offset, bytes, size_bytes);
}

void AtomicFile::Write(int64_t offset, const void* bytes, size_t size_bytes) {
    CHECK(!is_finished_) << path_ << ": finished already";
    const auto* next = static_cast<const std::byte*>(bytes);
    while (size_bytes > 0) {
        const ssize_t count = pwrite(file_, next, std::min(size_bytes, kMaxWriteBytes), offset);
        if (count < 0 && errno == EINTR) {
            continue;
        }
        if (count < 0) {
            ThrowSystemError("cannot write");
        }
        next += count;
        size_bytes -= static_cast<size_t>(count);
        offset += count;
    }
}

void AtomicFile::Finish() {
    CHECK(!is_finished_) << path_ << ": finished already";
    // Without it the new name may reach the disk before the data does.
    if (fsync(file_) != 0) {
        ThrowSystemError("cannot write");
    }
    is_finished_ = true;
}

void AtomicFile::Commit() {
    CHECK(!is_committed_) << path_ << ": committed already";
    if (!is_finished_) {
        Finish();
    }
    if (std::rename(temporary_path_.c_str(), path_.c_str()) != 0) {
        ThrowSystemError("cannot move the finished file into place");
    }
    is_committed_ = true;
    // The file is complete under either name, so a folder that cannot be synced is no error.
    const int folder = open(FolderOf(path_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder >= 0) {
        fsync(folder);
        close(folder);
    }
}

void AtomicFile::ThrowSystemError(const std::string& what) const {
    throw Error({.where = path_, .what = StrCat(what, ": ", std::strerror(errno)), .kind = Error::Kind::kRuntime});
}

}  // namespace infini_train
