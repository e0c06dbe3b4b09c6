#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "infini_train/include/common/atomic_file.h"
#include "infini_train/include/core/dtype.h"
#include "infini_train/include/core/shape.h"

namespace infini_train::checkpoint {

/// Writes a file of safetensors, piece by piece. It appears at its path with Commit; what was there before stays until
/// then. Tensors lie in it by the width of their dtype, the widest first, then by name; the first byte of their values
/// is at a multiple of 8.
class SafetensorsWriter {
 public:
    struct Tensor {
        std::string name = {};
        DataType dtype = DataType::kFloat32;  // or kBFloat16
        Shape shape = {};
    };

    /// Writes the header. Readers for PyTorch want metadata "format". Throws Error for a header of more than 100000000
    /// bytes, which readers refuse, and when the file cannot be made. CHECKs that no name comes twice.
    SafetensorsWriter(const std::string& path, std::vector<Tensor> tensors,
                      const std::map<std::string, std::string>& metadata = {{"format", "pt"}});

    /// In the order of the file.
    const std::vector<Tensor>& tensors() const { return tensors_; }
    /// Header and values.
    uint64_t size_bytes() const { return size_bytes_; }

    /// The next values in the order of the file, any number of them; rounded to nearest where they are stored as
    /// bfloat16. Throws Error when the disk is full.
    void Append(std::span<const float> values);
    /// CHECKs that all values were appended.
    void Commit();

 private:
    /// Goes on to the first tensor, from this one, that has values.
    void Enter(size_t index);

    std::vector<Tensor> tensors_;
    uint64_t size_bytes_ = 0;
    AtomicFile file_;
    size_t current_ = 0;      // the tensor that is being written
    size_t num_missing_ = 0;  // values of it
};

}  // namespace infini_train::checkpoint
