#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "infini_train/include/checkpoint/weight_source.h"
#include "infini_train/include/common/file.h"
#include "infini_train/include/core/dtype.h"
#include "infini_train/include/core/shape.h"

namespace infini_train::checkpoint {

/// The tensors of one open file. The readers of each format make one after they have checked the file. A copy shares
/// the open file.
class WeightFile : public WeightSource {
 public:
    struct Entry {
        uint64_t offset = 0;  // of the first byte, in the file
        Shape shape;
        DataType dtype = DataType::kFloat32;  // or kBFloat16
        /// The last rows of the first axis that are padding: they read as zero, whatever the file holds there (a NaN
        /// in a row of the embedding that no token uses must not reach the optimizer or a dot product).
        int64_t num_padding_rows = 0;
    };

    /// CHECKs that every tensor lies within the file.
    WeightFile(std::shared_ptr<const ReadOnlyFile> file, std::map<std::string, Entry> entries);

    const std::string& path() const override { return file_->path(); }
    DataType dtype() const override;
    std::vector<std::string> names() const;
    bool Contains(const std::string& name) const override { return entries_.contains(name); }
    const Shape& shape(const std::string& name) const override { return At(name).shape; }
    void ReadRows(const std::string& name, int64_t begin, int64_t end, float* destination) const override;
    /// Columns [begin, end) of a matrix, each as a row: of its transpose, these rows. Widened to float32.
    void ReadColumns(const std::string& name, int64_t begin, int64_t end, float* destination) const;
    /// The whole tensor, widened to float32.
    void Read(const std::string& name, float* destination) const;

 private:
    const Entry& At(const std::string& name) const;

    std::shared_ptr<const ReadOnlyFile> file_;
    std::map<std::string, Entry> entries_;
};

}  // namespace infini_train::checkpoint
