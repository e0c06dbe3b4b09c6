#include "infini_train/include/common/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "glog/logging.h"

#include "infini_train/include/common/error.h"
#include "infini_train/include/common/str_cat.h"

namespace infini_train {
namespace {

constexpr size_t kMaxWriteBytes = size_t{1} << 30;  // Linux writes less than 2 GiB a call

}  // namespace

AtomicFile::AtomicFile(const std::string& path) : path_(path), temporary_path_(StrCat(path, ".tmp.", getpid())) {
    struct stat status = {};
    // The move at the end would put a file in the place of a device's name.
    if (stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) {
        throw Error({.where = path, .what = "cannot write: there is something that is not a regular file"});
    }
    file_ = open(temporary_path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file_ < 0) {
        throw Error({.where = path, .what = StrCat("cannot make ", temporary_path_, ": ", std::strerror(errno))});
    }
}

AtomicFile::~AtomicFile() {
    close(file_);
    if (!is_committed_) {
        unlink(temporary_path_.c_str());
    }
}

void AtomicFile::Append(const void* bytes, size_t size_bytes) {
    CHECK(!is_committed_) << path_ << ": committed already";
    const auto* next = static_cast<const std::byte*>(bytes);
    while (size_bytes > 0) {
        const ssize_t count = write(file_, next, std::min(size_bytes, kMaxWriteBytes));
        if (count < 0 && errno == EINTR) {
            continue;
        }
        if (count < 0) {
            ThrowSystemError("cannot write");
        }
        next += count;
        size_bytes -= static_cast<size_t>(count);
    }
}

void AtomicFile::Commit() {
    CHECK(!is_committed_) << path_ << ": committed already";
    // Without it the new name may reach the disk before the data does.
    if (fsync(file_) != 0) {
        ThrowSystemError("cannot write");
    }
    if (std::rename(temporary_path_.c_str(), path_.c_str()) != 0) {
        ThrowSystemError("cannot move the finished file into place");
    }
    is_committed_ = true;
    // The file is complete under either name, so a folder that cannot be synced is no error.
    const std::string folder = std::filesystem::path(path_).parent_path().string();
    const int folder_file = open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder_file >= 0) {
        fsync(folder_file);
        close(folder_file);
    }
}

void AtomicFile::ThrowSystemError(const std::string& what) const {
    throw Error({.where = path_, .what = StrCat(what, ": ", std::strerror(errno)), .kind = Error::Kind::kRuntime});
}

}  // namespace infini_train
