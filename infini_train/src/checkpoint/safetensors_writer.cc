#include "infini_train/include/checkpoint/safetensors_writer.h"

#include <algorithm>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "glog/logging.h"
#include "nlohmann/json.hpp"

#include "infini_train/include/common/checked_math.h"
#include "infini_train/include/common/error.h"
#include "infini_train/include/common/str_cat.h"
#include "infini_train/src/checkpoint/safetensors_header.h"

namespace infini_train::checkpoint {
namespace {

constexpr size_t kChunk = size_t{1} << 17;  // bfloat16 values between the caller and the file: 256 KiB
constexpr size_t kAlignment = 8;            // of the values, in the file

uint64_t SizeOfValues(const SafetensorsWriter::Tensor& tensor) {
    const std::optional<uint64_t> size_bytes =
        CheckedMultiply(static_cast<uint64_t>(NumElements(tensor.shape)), SizeOf(tensor.dtype));
    CHECK(size_bytes.has_value()) << tensor.name << " " << ToString(tensor.shape);
    return *size_bytes;
}

void SortForFile(std::vector<SafetensorsWriter::Tensor>& tensors) {
    std::sort(tensors.begin(), tensors.end(),
              [](const SafetensorsWriter::Tensor& a, const SafetensorsWriter::Tensor& b) {
                  const size_t a_width = SizeOf(a.dtype);
                  const size_t b_width = SizeOf(b.dtype);
                  return std::tie(b_width, a.name) < std::tie(a_width, b.name);
              });
}

/// Of tensors in the order of the file. Adds up their bytes.
std::string HeaderOf(const std::vector<SafetensorsWriter::Tensor>& tensors,
                     const std::map<std::string, std::string>& metadata, uint64_t* size_bytes) {
    nlohmann::ordered_json header = nlohmann::ordered_json::object();
    if (!metadata.empty()) {
        header["__metadata__"] = metadata;
    }
    std::set<std::string> names = {"__metadata__"};
    for (const SafetensorsWriter::Tensor& tensor : tensors) {
        CHECK(IsFloat(tensor.dtype)) << tensor.name << " as " << Name(tensor.dtype);
        CHECK(names.insert(tensor.name).second) << "tensor " << tensor.name << " comes twice";
        const uint64_t begin = *size_bytes;
        *size_bytes += SizeOfValues(tensor);
        CHECK_GE(*size_bytes, begin) << "more than 2^64 bytes";
        // Not header[name] = ...: an ordered object looks for the name among all that it has.
        header.get_ref<nlohmann::ordered_json::object_t&>().emplace_back(
            tensor.name, nlohmann::ordered_json{{"dtype", tensor.dtype == DataType::kFloat32 ? "F32" : "BF16"},
                                                {"shape", tensor.shape},
                                                {"data_offsets", {begin, *size_bytes}}});
    }
    std::string text = header.dump();
    text.resize((text.size() + kAlignment - 1) / kAlignment * kAlignment, ' ');
    return text;
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(const std::string& path, std::vector<Tensor> tensors,
                                     const std::map<std::string, std::string>& metadata)
    : tensors_(std::move(tensors)), file_(path) {
    SortForFile(tensors_);
    const std::string header = HeaderOf(tensors_, metadata, &size_bytes_);
    if (header.size() > kMaxJsonBytes) {
        throw Error({.where = path,
                     .what = StrCat("the names of ", tensors_.size(), " tensors make the safetensors header too large"),
                     .got = StrCat(header.size(), " bytes"),
                     .wanted = StrCat("at most ", kMaxJsonBytes, "; write several files")});
    }
    const uint64_t header_bytes = header.size();
    size_bytes_ += kSafetensorsSizeBytes + header_bytes;
    file_.Append(&header_bytes, kSafetensorsSizeBytes);
    file_.Append(header.data(), header.size());
    Enter(0);
}

void SafetensorsWriter::Enter(size_t index) {
    num_missing_ = 0;
    for (current_ = index; current_ < tensors_.size(); ++current_) {
        num_missing_ = static_cast<size_t>(NumElements(tensors_[current_].shape));
        if (num_missing_ != 0) {
            return;
        }
    }
}

void SafetensorsWriter::Append(std::span<const float> values) {
    std::vector<BFloat16> narrow;
    while (!values.empty()) {
        CHECK_LT(current_, tensors_.size()) << values.size() << " values after the last tensor";
        const bool is_narrow = tensors_[current_].dtype == DataType::kBFloat16;
        const auto piece = values.first(std::min({values.size(), num_missing_, is_narrow ? kChunk : values.size()}));
        if (is_narrow) {
            narrow.resize(piece.size());
            std::transform(piece.begin(), piece.end(), narrow.begin(), [](float value) { return BFloat16(value); });
            file_.Append(narrow.data(), narrow.size() * sizeof(BFloat16));
        } else {
            file_.Append(piece.data(), piece.size_bytes());
        }
        values = values.subspan(piece.size());
        num_missing_ -= piece.size();
        if (num_missing_ == 0) {
            Enter(current_ + 1);
        }
    }
}

void SafetensorsWriter::Commit() {
    CHECK_EQ(current_, tensors_.size()) << "tensor " << tensors_[current_].name << " lacks " << num_missing_
                                        << " values";
    file_.Commit();
}

}  // namespace infini_train::checkpoint
