#include "infini_train/include/checkpoint/weight_file.h"

#include <algorithm>
#include <bit>
#include <utility>
#include <vector>

#include "glog/logging.h"

#include "infini_train/include/common/error.h"
#include "infini_train/src/checkpoint/hf_order.h"

static_assert(std::endian::native == std::endian::little, "weights are read as they lie in memory");

namespace infini_train::checkpoint {
namespace {

constexpr size_t kChunk = size_t{1} << 17;  // bfloat16 values between the file and the destination: 256 KiB
constexpr int64_t kTileRows = 64;           // of a matrix whose columns are read: they are turned in the cache

int64_t NumRows(const Shape& shape) {
    return shape.empty() ? 1 : shape[0];
}

void ReadValues(const ReadOnlyFile& file, uint64_t offset, DataType dtype, size_t count, float* destination) {
    if (dtype == DataType::kFloat32) {
        file.Read(offset, destination, count * sizeof(float));
        return;
    }
    std::vector<BFloat16> chunk(std::min(count, kChunk));
    for (size_t begin = 0; begin < count; begin += kChunk) {
        const size_t size = std::min(kChunk, count - begin);
        file.Read(offset + begin * sizeof(BFloat16), chunk.data(), size * sizeof(BFloat16));
        float* widened = destination + begin;
        const BFloat16* values = chunk.data();
#pragma omp simd
        for (size_t i = 0; i < size; ++i) {
            widened[i] = static_cast<float>(values[i]);
        }
    }
}

}  // namespace

WeightFile::WeightFile(std::shared_ptr<const ReadOnlyFile> file, std::map<std::string, Entry> entries)
    : file_(std::move(file)), entries_(std::move(entries)) {
    CHECK_NOTNULL(file_.get());
    for (const auto& [name, entry] : entries_) {
        CHECK(IsFloat(entry.dtype)) << name << " is " << Name(entry.dtype);
        CHECK(0 <= entry.num_padding_rows && entry.num_padding_rows <= NumRows(entry.shape)) << name;
        const auto num_elements = static_cast<uint64_t>(NumElements(entry.shape));
        CHECK(entry.offset <= file_->size_bytes() &&
              num_elements <= (file_->size_bytes() - entry.offset) / SizeOf(entry.dtype))
            << path() << ": " << name << " " << ToString(entry.shape) << " at byte " << entry.offset;
    }
}

std::vector<std::string> WeightFile::names() const {
    std::vector<std::string> names;
    for (const auto& [name, entry] : entries_) {
        names.push_back(name);
    }
    return names;
}

DataType WeightFile::dtype() const {
    const bool all_are_bfloat16 = std::all_of(entries_.begin(), entries_.end(), [](const auto& named_entry) {
        return named_entry.second.dtype == DataType::kBFloat16;
    });
    return all_are_bfloat16 ? DataType::kBFloat16 : DataType::kFloat32;
}

void WeightFile::Read(const std::string& name, float* destination) const {
    ReadRows(name, 0, NumRows(At(name).shape), destination);
}

void WeightFile::ReadRows(const std::string& name, int64_t begin, int64_t end, float* destination) const {
    const Entry& entry = At(name);
    const int64_t num_rows = NumRows(entry.shape);
    CHECK(0 <= begin && begin <= end && end <= num_rows)
        << path() << ": rows " << begin << " to " << end << " of " << num_rows << " of " << name;
    if (begin == end) {
        return;
    }
    const int64_t row_size = NumElements(entry.shape) / num_rows;
    const int64_t stored_end = std::clamp(num_rows - entry.num_padding_rows, begin, end);
    const auto num_stored = static_cast<size_t>((stored_end - begin) * row_size);
    const auto first = static_cast<uint64_t>(begin * row_size);
    ReadValues(*file_, entry.offset + first * SizeOf(entry.dtype), entry.dtype, num_stored, destination);
    std::fill(destination + num_stored, destination + (end - begin) * row_size, 0.0f);
}

void WeightFile::ReadColumns(const std::string& name, int64_t begin, int64_t end, float* destination) const {
    const Entry& entry = At(name);
    CHECK_EQ(entry.shape.size(), 2u) << path() << ": columns of " << name;
    CHECK_EQ(entry.num_padding_rows, 0) << name;
    const int64_t num_rows = entry.shape[0];
    const int64_t num_columns = entry.shape[1];
    CHECK(0 <= begin && begin <= end && end <= num_columns)
        << path() << ": columns " << begin << " to " << end << " of " << num_columns << " of " << name;
    const auto width = static_cast<size_t>(end - begin);
    std::vector<float> tile(static_cast<size_t>(std::min(kTileRows, num_rows)) * width);
    for (int64_t first = 0; first < num_rows; first += kTileRows) {
        const int64_t count = std::min(kTileRows, num_rows - first);
        for (int64_t row = 0; row < count; ++row) {
            const auto place = static_cast<uint64_t>((first + row) * num_columns + begin);
            ReadValues(*file_, entry.offset + place * SizeOf(entry.dtype), entry.dtype, width,
                       tile.data() + static_cast<size_t>(row) * width);
        }
        Transpose(tile.data(), count, end - begin, destination + first, num_rows);
    }
}

const WeightFile::Entry& WeightFile::At(const std::string& name) const {
    const auto found = entries_.find(name);
    if (found == entries_.end()) {
        throw Error({.where = path(), .what = "has no tensor " + name});
    }
    return found->second;
}

}  // namespace infini_train::checkpoint
