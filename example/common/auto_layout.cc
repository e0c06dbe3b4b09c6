#include "example/common/auto_layout.h"

#include <omp.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <memory>
#include <vector>

#include "example/common/pipeline_setup.h"
#include "infini_train/include/autograd/engine.h"
#include "infini_train/include/common/str_cat.h"

namespace infini_train {
namespace {

constexpr int kNumRuns = 4;  // the first one also takes memory from the system, and is not counted

struct TimedPart {
    double ms = 0.0;
    std::shared_ptr<Tensor> output = nullptr;
};

/// Forward and backward of some layers. The last ones end in the loss, others in a gradient of ones.
TimedPart Time(const ProgramOptions& options, const ModelSpec& model, const nn::parallel::LayerRange& layers,
               const std::shared_ptr<Tensor>& input, const Device& device) {
    const std::shared_ptr<nn::Module> net = model.build(layers, std::make_shared<nn::DropoutPosition>(), device);
    net->Initialize(options.seed);
    net->To(options.dtype);
    TimedPart best = {.ms = std::numeric_limits<double>::infinity()};
    for (int run = 0; run < kNumRuns; ++run) {
        const std::shared_ptr<Tensor> x = input->Detach();
        if (!layers.is_first()) {
            x->set_requires_grad(true);
        }
        const auto wait_for_device = [&] {
            if (Stream* const stream = StreamOf(device); stream != nullptr) {
                stream->Synchronize();
            }
        };
        wait_for_device();
        const auto start = std::chrono::steady_clock::now();
        std::shared_ptr<Tensor> output = net->Forward({x})[0];
        best.output = output->Detach();
        std::shared_ptr<Tensor> grad = best.output;
        if (layers.is_last()) {
            const auto targets = Tensor::Zeros({options.batch_size, options.sequence_length}, DataType::kInt32, device);
            output = MakeLoss(model)->Forward({output, targets})[0];
            grad = nullptr;
        }
        autograd::Backward({output}, {grad});
        wait_for_device();
        const std::chrono::duration<double, std::milli> elapsed = std::chrono::steady_clock::now() - start;
        best.ms = run == 0 ? best.ms : std::min(best.ms, elapsed.count());
    }
    return best;
}

}  // namespace

AutoLayout ChooseLayout(const ProgramOptions& options, const ModelSpec& model, int num_stages, int num_ranks) {
    const int num_layers = model.num_layers;
    if (num_layers == num_stages) {
        return {.layout = nn::parallel::EvenLayout(num_layers, num_stages),
                .note = "as many stages as layers: one each, nothing was measured"};
    }
    const int all_threads = omp_get_max_threads();
    omp_set_num_threads(options.threads_per_rank > 0 ? options.threads_per_rank : std::max(1, all_threads / num_ranks));
    const Device device = options.device == DeviceType::kCUDA ? MakeCudaDevice(0) : MakeCpuDevice();
    const auto ids = Tensor::Zeros({options.batch_size, options.sequence_length}, DataType::kInt32, device);
    const auto range = [&](int begin) {
        return nn::parallel::LayerRange{.begin = begin, .end = begin + 1, .num_layers = num_layers};
    };
    const TimedPart first = Time(options, model, range(0), ids, device);
    const TimedPart last = Time(options, model, range(num_layers - 1), first.output, device);
    // Fewer stages than layers and at least one stage: there are two layers or more. Of two none is in the middle.
    const double layer_ms = num_layers > 2 ? Time(options, model, range(1), first.output, device).ms : first.ms;
    omp_set_num_threads(all_threads);
    const nn::parallel::LayerCosts costs = {
        .embedding = std::max(0.0, first.ms - layer_ms), .layer = layer_ms, .head = std::max(0.0, last.ms - layer_ms)};
    const nn::parallel::StageLayout layout = nn::parallel::BalancedLayout(num_layers, num_stages, costs);
    return {.layout = layout,
            .note = StrCat("measured for a micro-batch, forward and backward: embedding ", costs.embedding,
                           " ms, a layer ", costs.layer, " ms, head and loss ", costs.head,
                           " ms; layers of the stages ", nn::parallel::ToString(layout))};
}

}  // namespace infini_train
