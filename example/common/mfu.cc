#include "example/common/mfu.h"

#include <array>
#include <string_view>

namespace infini_train {

double PeakFlops(std::string_view hardware, DataType dtype) {
    struct Peak {
        std::string_view name;
        double bfloat16;
        double float32;  // without TF32
    };
    // The PCIe and NVL parts have other rates and names that hold these: left out by their longer names.
    constexpr std::array<Peak, 4> kPeaks = {{{"NVIDIA H200", 989e12, 67e12},
                                             {"NVIDIA H100 80GB HBM3", 989e12, 67e12},
                                             {"NVIDIA A100-SXM4-80GB", 312e12, 19.5e12},
                                             {"NVIDIA A100-SXM4-40GB", 312e12, 19.5e12}}};
    for (const Peak& peak : kPeaks) {
        if (hardware == peak.name) {
            return dtype == DataType::kBFloat16 ? peak.bfloat16 : peak.float32;
        }
    }
    return 0.0;
}

double FlopsPerToken(int64_t num_parameters, int num_layers, int64_t num_channels, int64_t sequence_length) {
    return 6.0 * static_cast<double>(num_parameters) +
           12.0 * static_cast<double>(num_layers) * static_cast<double>(num_channels * sequence_length);
}

}  // namespace infini_train
