#include "test/support/plan_mutations.h"

#include <cstddef>
#include <utility>

#include "infini_train/include/common/error.h"
#include "infini_train/include/common/str_cat.h"

namespace infini_train::test {

using nn::parallel::ActionList;
using nn::parallel::PipelineShape;

void ForEachMutation(const PipelineShape& shape, const std::vector<ActionList>& plans,
                     const std::function<void(const Mutation&)>& visit) {
    for (int rank = 0; rank < shape.num_ranks; ++rank) {
        const ActionList& plan = plans[static_cast<size_t>(rank)];
        const auto visit_with = [&](const std::string& what, const ActionList& changed) {
            Mutation mutation = {.rank = rank, .what = StrCat("rank ", rank, ": ", what), .plans = plans};
            mutation.plans[static_cast<size_t>(rank)] = changed;
            visit(mutation);
        };
        for (size_t i = 0; i < plan.size(); ++i) {
            const std::string token = ToString(plan[i], shape, rank);
            const auto place = static_cast<ptrdiff_t>(i);
            ActionList changed = plan;
            changed.erase(changed.begin() + place);
            visit_with(token + " deleted", changed);
            changed = plan;
            changed.insert(changed.begin() + place, plan[i]);
            visit_with(token + " doubled", changed);
            for (size_t j = i + 1; j < plan.size(); ++j) {
                changed = plan;
                std::swap(changed[i], changed[j]);
                visit_with(token + " swapped with " + ToString(plan[j], shape, rank), changed);
            }
        }
    }
}

std::vector<Mutation> ValidMutations(const PipelineShape& shape, const std::vector<ActionList>& plans) {
    std::vector<Mutation> valid;
    ForEachMutation(shape, plans, [&](const Mutation& mutation) {
        try {
            CheckPlans(shape, mutation.plans, nn::parallel::PlanKind::kTraining, {});
            valid.push_back(mutation);
        } catch (const Error&) {
            // Refused, as most are; plan_mutation_test says rightly so.
        }
    });
    return valid;
}

}  // namespace infini_train::test
