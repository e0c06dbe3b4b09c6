#include "example/common/run_report.h"

#include <unistd.h>

#include <array>
#include <utility>

#include "example/common/flags.h"
#include "example/common/report.h"
#include "infini_train/include/comm/mesh.h"
#include "infini_train/include/common/str_cat.h"
#include "infini_train/include/nn/parallel/pp/stage_layout.h"

namespace infini_train {
namespace {

std::string HostName() {
    std::array<char, 256> name = {};
    return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "?";
}

ReportSection RunSection(const RunPlan& plan, const Device& device) {
    const PipelineSetup& setup = *plan.setup;
    const std::string hardware = HardwareName(device);
    return {
        .title = "Run",
        .rows = {{"model", plan.model->name},
                 {"parameters", StrCat(plan.prediction->num_elements)},
                 {"dtype", std::string(Name(plan.options->dtype))},
                 {"device of rank 0", ToString(device) + (hardware.empty() ? "" : ", " + hardware)},
                 {"host of rank 0", HostName()},
                 {"ranks", StrCat("DP ", setup.mesh.data, ", TP ", setup.mesh.tensor, ", PP ", setup.mesh.pipeline)},
                 {"schedule",
                  StrCat(setup.schedule_name, ", M ", setup.shape.num_microbatches, ", V ", setup.shape.num_chunks)},
                 {"layers of the stages", nn::parallel::ToString(setup.layout)}}};
}

}  // namespace

void WriteRunReport(const RunPlan& plan, const Device& device, const RunLog& log,
                    const std::vector<int64_t>& peak_bytes, const std::string& timeline_svg) {
    ReportData data = {
        .title = plan.model->name,
        .configuration = {RunSection(plan, device), SectionOfLines("Flags that were given", GivenFlags(), false),
                          SectionOfLines("All flags", FlagsFingerprint(), true)},
        .notes = log.notes(),
        .history = log.history(),
        .timeline_svg = timeline_svg};
    for (size_t rank = 0; rank < peak_bytes.size(); ++rank) {
        const auto stage_rank =
            static_cast<size_t>(comm::PositionOf(static_cast<int>(rank), plan.setup->mesh).pipeline);
        data.memory.push_back(
            {.predicted_bytes = plan.prediction->peak_bytes[stage_rank], .measured_bytes = peak_bytes[rank]});
    }
    for (const RunLog::TextOfStep& text : log.texts()) {
        data.samples.push_back({.step = text.step, .text = text.text});
    }
    WriteReport(plan.options->report, data);
}

}  // namespace infini_train
