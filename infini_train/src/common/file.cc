#include "infini_train/include/common/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "infini_train/include/common/error.h"
#include "infini_train/include/common/str_cat.h"

static_assert(sizeof(off_t) == 8, "files may be larger than 2 GiB");

namespace infini_train {
namespace {

constexpr size_t kMaxReadBytes = size_t{1} << 30;  // Linux reads less than 2 GiB a call

}  // namespace

ReadOnlyFile::ReadOnlyFile(const std::string& path) : path_(path) {
    // Without O_NONBLOCK the open of a named pipe waits for a writer.
    file_ = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file_ < 0) {
        throw Error({.where = path, .what = StrCat("cannot open: ", std::strerror(errno))});
    }
    struct stat status = {};
    const bool has_status = fstat(file_, &status) == 0;
    if (!has_status || !S_ISREG(status.st_mode)) {
        const std::string what = has_status ? "is not a regular file" : StrCat("cannot open: ", std::strerror(errno));
        close(file_);
        throw Error({.where = path, .what = what});
    }
    size_bytes_ = static_cast<uint64_t>(status.st_size);
}

ReadOnlyFile::~ReadOnlyFile() {
    close(file_);
}

void ReadOnlyFile::Read(uint64_t offset, void* destination, size_t size_bytes) const {
    auto* bytes = static_cast<std::byte*>(destination);
    while (size_bytes > 0) {
        const ssize_t result = pread(file_, bytes, std::min(size_bytes, kMaxReadBytes), static_cast<off_t>(offset));
        if (result < 0 && errno == EINTR) {
            continue;
        }
        if (result < 0) {
            throw Error({.where = path_,
                         .what = StrCat("cannot read at byte ", offset, ": ", std::strerror(errno)),
                         .kind = Error::Kind::kRuntime});
        }
        if (result == 0) {
            throw Error({.where = path_,
                         .what = "the file ends too early; has it been changed since it was opened?",
                         .got = StrCat(offset, " bytes"),
                         .wanted = StrCat("at least ", offset + size_bytes)});
        }
        const auto count = static_cast<size_t>(result);
        bytes += count;
        offset += count;
        size_bytes -= count;
    }
}

}  // namespace infini_train
