#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "nlohmann/json.hpp"

#include "infini_train/include/nn/parallel/pp/passes.h"
#include "infini_train/include/nn/parallel/pp/plan_file.h"
#include "infini_train/include/nn/parallel/pp/schedules.h"
#include "test/support/run_program.h"

namespace infini_train::nn::parallel::test {

/// An entry of schedules_golden.json: its numbers, and its order as a plan file gives it.
struct GoldenPlan {
    std::string name;  // "P4_M8 zb_v"
    nlohmann::json numbers;
    PlanFile file;
};

inline nlohmann::json GoldenFile() {
    return nlohmann::json::parse(infini_train::test::ReadTextFile(std::string(INFINI_SOURCE_DIR) +
                                                                  "/test/nn/parallel/pp/schedules_golden.json"));
}

/// An entry is a plan file with more fields.
inline std::vector<GoldenPlan> GoldenPlans() {
    std::vector<GoldenPlan> plans;
    const infini_train::test::TemporaryFolder folder;
    const nlohmann::json golden = GoldenFile();
    for (const auto& [size, schedules] : golden.items()) {
        for (const auto& [name, numbers] : schedules.items()) {
            if (name[0] == '_') {
                continue;
            }
            const std::string path = folder.File(name + ".json");
            infini_train::test::WriteTextFile(path, numbers.dump());
            plans.push_back({.name = size + " " + name, .numbers = numbers, .file = ReadPlanFile(path)});
        }
    }
    return plans;
}

/// The planner of a golden name, or null.
inline std::unique_ptr<PipelineSchedule> PlannerOf(const std::string& name) {
    for (const auto& [golden, flag] :
         std::vector<std::pair<std::string, std::string>>{{"gpipe", "gpipe"},
                                                          {"1f1b", "1f1b"},
                                                          {"1f1b_eager", "1f1b_eager"},
                                                          {"interleaved_v2", "interleaved"},
                                                          {"looped_bfs_v2", "looped_bfs"}}) {
        if (name == golden || name.ends_with(" " + golden)) {
            return MakeSchedule(flag);
        }
    }
    return nullptr;
}

inline std::vector<ActionList> ComputePlans(const PipelineSchedule& schedule, const PipelineShape& shape) {
    std::vector<ActionList> plans;
    for (int rank = 0; rank < shape.num_ranks; ++rank) {
        plans.push_back(schedule.Plan(shape, rank));
    }
    return plans;
}

/// With receives placed.
inline std::vector<ActionList> PlacedPlans(const PipelineSchedule& schedule, const PipelineShape& shape) {
    std::vector<ActionList> plans = ComputePlans(schedule, shape);
    PlaceReceives(shape, &plans);
    return plans;
}

}  // namespace infini_train::nn::parallel::test
