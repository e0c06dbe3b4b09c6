#include "example/common/tensorboard.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <optional>
#include <sstream>
#include <string_view>
#include <system_error>
#include <vector>

#include "glog/logging.h"
#include "nlohmann/json.hpp"

#include "infini_train/include/common/atomic_file.h"
#include "infini_train/include/common/error.h"
#include "infini_train/include/common/file.h"
#include "infini_train/include/common/str_cat.h"

namespace infini_train {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are written as they lie in memory");

constexpr std::string_view kNameStart = "events.out.tfevents.";
constexpr std::string_view kNameEnd = ".infini_train";

// ---- records ----

/// CRC-32C (Castagnoli), reflected.
uint32_t Crc32c(std::string_view bytes) {
    static constexpr auto kTable = [] {
        std::array<uint32_t, 256> table = {};
        for (uint32_t i = 0; i < table.size(); ++i) {
            uint32_t value = i;
            for (int bit = 0; bit < 8; ++bit) {
                value = (value >> 1) ^ ((value & 1) != 0 ? 0x82f63b78u : 0u);
            }
            table[i] = value;
        }
        return table;
    }();
    uint32_t crc = ~0u;
    for (const char byte : bytes) {
        crc = (crc >> 8) ^ kTable[(crc ^ static_cast<uint8_t>(byte)) & 0xff];
    }
    return ~crc;
}

/// As the framing stores it: turned and moved, so that a checksum of bytes that hold checksums is no special case.
uint32_t MaskedCrc32c(std::string_view bytes) {
    return std::rotr(Crc32c(bytes), 15) + 0xa282ead8u;
}

template <typename T>
std::string Bytes(T value) {
    std::string bytes(sizeof(T), '\0');
    std::memcpy(bytes.data(), &value, sizeof(T));
    return bytes;
}

constexpr uint64_t kFrameStart = sizeof(uint64_t) + sizeof(uint32_t);
constexpr uint64_t kFrameEnd = sizeof(uint32_t);

std::string Framed(const std::string& record) {
    const std::string length = Bytes<uint64_t>(record.size());
    return length + Bytes(MaskedCrc32c(length)) + record + Bytes(MaskedCrc32c(record));
}

std::string ReadBytes(const ReadOnlyFile& file, uint64_t offset, uint64_t size_bytes) {
    std::string bytes(size_bytes, '\0');
    file.Read(offset, bytes.data(), bytes.size());
    return bytes;
}

template <typename T>
T ValueAt(const std::string& bytes, size_t offset) {
    T value = {};
    std::memcpy(&value, bytes.data() + offset, sizeof(T));
    return value;
}

/// The record at an offset; nothing where it is torn or damaged.
std::optional<std::string> ReadRecord(const ReadOnlyFile& file, uint64_t offset) {
    const uint64_t left = file.size_bytes() - offset;
    if (left < kFrameStart + kFrameEnd) {
        return std::nullopt;
    }
    const std::string start = ReadBytes(file, offset, kFrameStart);
    const auto size = ValueAt<uint64_t>(start, 0);
    if (ValueAt<uint32_t>(start, sizeof(size)) != MaskedCrc32c({start.data(), sizeof(size)}) ||
        size > left - kFrameStart - kFrameEnd) {
        return std::nullopt;
    }
    std::string record = ReadBytes(file, offset + kFrameStart, size + kFrameEnd);
    const auto crc = ValueAt<uint32_t>(record, size);
    record.resize(size);
    return crc == MaskedCrc32c(record) ? std::optional(record) : std::nullopt;
}

// ---- protocol buffers ----

enum class Wire : uint64_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

std::string Varint(uint64_t value) {
    std::string bytes;
    for (; value >= 0x80; value >>= 7) {
        bytes += static_cast<char>(value | 0x80);
    }
    return bytes + static_cast<char>(value);
}

std::string Key(uint64_t field, Wire wire) {
    return Varint(field << 3 | static_cast<uint64_t>(wire));
}

/// A string, or a message in a message.
std::string BytesField(uint64_t field, std::string_view bytes) {
    return Key(field, Wire::kBytes) + Varint(bytes.size()) + std::string(bytes);
}

std::string VarintField(uint64_t field, int64_t value) {
    return Key(field, Wire::kVarint) + Varint(static_cast<uint64_t>(value));
}

std::optional<uint64_t> TakeVarint(std::string_view* bytes) {
    uint64_t value = 0;
    for (int shift = 0; shift < 64 && !bytes->empty(); shift += 7) {
        const auto byte = static_cast<uint8_t>(bytes->front());
        bytes->remove_prefix(1);
        value |= static_cast<uint64_t>(byte & 0x7f) << shift;
        if (byte < 0x80) {
            return value;
        }
    }
    return std::nullopt;
}

/// Of an Event; 0 where it names none, nothing where it is no message at all.
std::optional<int64_t> StepOf(std::string_view event) {
    int64_t step = 0;
    while (!event.empty()) {
        const std::optional<uint64_t> key = TakeVarint(&event);
        const auto wire = static_cast<Wire>(key.value_or(0) & 7);
        std::optional<uint64_t> size = 0;  // of a value that is passed over
        if (!key) {
            return std::nullopt;
        } else if (wire == Wire::kVarint) {
            const std::optional<uint64_t> value = TakeVarint(&event);
            if (!value) {
                return std::nullopt;
            }
            step = *key == 0x10 ? static_cast<int64_t>(*value) : step;  // field 2
        } else if (wire == Wire::kBytes) {
            size = TakeVarint(&event);
        } else if (wire == Wire::kFixed64 || wire == Wire::kFixed32) {
            size = wire == Wire::kFixed64 ? sizeof(uint64_t) : sizeof(uint32_t);
        } else {
            return std::nullopt;
        }
        if (!size || *size > event.size()) {
            return std::nullopt;
        }
        event.remove_prefix(*size);
    }
    return step;
}

/// Summary.value: tag (1), simple_value (2)
std::string Scalar(std::string_view tag, float value) {
    return BytesField(1, BytesField(1, tag) + Key(2, Wire::kFixed32) + Bytes(value));
}

/// Summary.value: tag (1), tensor (8) of one string, metadata (9) that names the plugin for texts
std::string Text(std::string_view tag, const std::string& text) {
    constexpr int64_t kString = 7;  // DataType.DT_STRING
    const std::string shape = BytesField(2, VarintField(1, 1));
    const std::string tensor = VarintField(1, kString) + BytesField(2, shape) + BytesField(8, text);
    const std::string metadata = BytesField(1, BytesField(1, "text"));
    return BytesField(1, BytesField(1, tag) + BytesField(8, tensor) + BytesField(9, metadata));
}

// ---- the files of a folder ----

std::vector<std::filesystem::path> OurFiles(const std::string& folder) {
    std::vector<std::filesystem::path> paths;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
        const std::string name = entry.path().filename().string();
        if (name.starts_with(kNameStart) && name.ends_with(kNameEnd) && entry.is_regular_file()) {
            paths.push_back(entry.path());
        }
    }
    return paths;
}

/// Takes away the records behind last_step, and all from one that is torn or damaged on.
void KeepUpTo(int64_t last_step, const std::string& path) {
    const ReadOnlyFile old(path);
    AtomicFile kept(path);
    bool drops_any = false;
    for (uint64_t offset = 0; offset < old.size_bytes();) {
        const std::optional<std::string> record = ReadRecord(old, offset);
        const std::optional<int64_t> step = record ? StepOf(*record) : std::nullopt;
        if (!step) {
            LOG(WARNING) << path << ": torn or damaged at byte " << offset << " of " << old.size_bytes()
                         << "; what follows is dropped";
            drops_any = true;
            break;
        }
        const std::string framed = Framed(*record);
        offset += framed.size();
        if (*step > last_step) {
            drops_any = true;
        } else {
            kept.Append(framed.data(), framed.size());
        }
    }
    if (drops_any) {
        kept.Commit();
    }
}

int64_t SecondsInName(const std::filesystem::path& path) {
    const std::string digits = path.filename().string().substr(kNameStart.size(), 10);
    int64_t seconds = 0;
    std::from_chars(digits.data(), digits.data() + digits.size(), seconds);
    return seconds;
}

double WallTime() {
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// TensorBoard reads the files of a folder in the order of their names: ours comes behind all there are.
std::string NewName(const std::vector<std::filesystem::path>& earlier) {
    auto seconds = static_cast<int64_t>(WallTime());
    for (const std::filesystem::path& path : earlier) {
        seconds = std::max(seconds, SecondsInName(path) + 1);
    }
    std::array<char, 256> host = {};
    if (gethostname(host.data(), host.size() - 1) != 0) {
        host = {"host"};
    }
    return StrCat(kNameStart, seconds, ".", host.data(), kNameEnd);
}

}  // namespace

TensorBoardWriter::TensorBoardWriter(const std::string& folder, int64_t resume_step) : resume_step_(resume_step) {
    if (folder.empty()) {
        return;
    }
    try {
        std::filesystem::create_directories(folder);
        std::vector<std::filesystem::path> earlier = OurFiles(folder);
        for (const std::filesystem::path& path : earlier) {
            if (resume_step_ == 0) {
                std::filesystem::remove(path);
            } else {
                KeepUpTo(resume_step_, path.string());
            }
        }
        path_ = folder + "/" + NewName(earlier);
    } catch (const std::filesystem::filesystem_error& error) {
        throw Error({.where = "--tensorboard " + folder,
                     .what = "cannot be made or read as a folder: " + error.code().message()});
    }
    file_.open(path_, std::ios::binary | std::ios::trunc);
    if (!file_) {
        throw Error({.where = "--tensorboard " + path_, .what = "cannot be written"});
    }
    WriteEvent(0, BytesField(3, "brain.Event:2"));  // file_version
    if (resume_step_ > 0) {
        // session_log.status START: a TensorBoard that watches has read what we have just cut away.
        WriteEvent(resume_step_ + 1, BytesField(7, VarintField(1, 1)));
    }
}

void TensorBoardWriter::WriteEvent(int64_t step, const std::string& fields) {
    if (path_.empty()) {
        return;
    }
    const std::string event =
        Key(1, Wire::kFixed64) + Bytes(WallTime()) + (step == 0 ? "" : VarintField(2, step)) + fields;
    file_ << Framed(event) << std::flush;  // others read it while we train
    if (!file_) {
        throw Error({.where = "--tensorboard " + path_, .what = "cannot be written", .kind = Error::Kind::kRuntime});
    }
}

void TensorBoardWriter::WriteStep(const StepMetrics& metrics) {
    const auto peak_mib = static_cast<float>(static_cast<double>(metrics.peak_bytes) / 1048576.0);
    const std::string summary = Scalar("train/loss", metrics.loss) + Scalar("train/grad_norm", metrics.grad_norm) +
                                Scalar("train/lr", metrics.lr) +
                                Scalar("train/tokens_per_s", static_cast<float>(metrics.tokens_per_s)) +
                                Scalar("train/ms", static_cast<float>(metrics.ms)) + Scalar("train/peak_mib", peak_mib);
    WriteEvent(metrics.step, BytesField(5, summary));
}

void TensorBoardWriter::WriteValidation(int64_t step, float val_loss) {
    WriteEvent(step, BytesField(5, Scalar("val/loss", val_loss)));
}

void TensorBoardWriter::WriteConfiguration(const std::string& text) {
    // Four blanks before a line: Markdown leaves it alone. Through JSON, what is no UTF-8 becomes U+FFFD.
    std::string block;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        block += "    " + line + "\n";
    }
    const std::string utf8 =
        nlohmann::json::parse(nlohmann::json(block).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    WriteEvent(resume_step_, BytesField(5, Text("configuration", utf8)));
}

}  // namespace infini_train
