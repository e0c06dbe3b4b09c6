#include "infini_train/src/nn/parallel/pp/inventory.h"

#include <algorithm>
#include <sstream>

namespace infini_train::nn::parallel {

std::string InventoryText(const PipelineStage& stage) {
    std::ostringstream own;
    for (int chunk = 0; chunk < stage.num_chunks(); ++chunk) {
        const Module& module = *stage.chunks()[static_cast<size_t>(chunk)];
        const std::vector<std::string> shared = module.SharedNames();
        for (const NamedParameter& parameter : module.NamedParameters()) {
            const bool is_shared = std::find(shared.begin(), shared.end(), parameter.name) != shared.end();
            own << stage.StageOf(chunk) << ' ' << is_shared << ' ' << parameter.tensor->num_elements() << ' '
                << parameter.name << '\n';
        }
    }
    return own.str();
}

std::vector<InventoryEntry> TakeInventory(const PipelineStage& stage) {
    std::vector<InventoryEntry> inventory;
    const std::vector<std::string> texts = stage.group().ExchangeText(InventoryText(stage));
    for (size_t rank = 0; rank < texts.size(); ++rank) {
        std::istringstream lines(texts[rank]);
        InventoryEntry entry = {.rank = static_cast<int>(rank)};
        while (lines >> entry.stage >> entry.is_shared >> entry.num_elements >> std::ws &&
               std::getline(lines, entry.name)) {
            inventory.push_back(entry);
        }
    }
    std::stable_sort(inventory.begin(), inventory.end(),
                     [](const InventoryEntry& a, const InventoryEntry& b) { return a.stage < b.stage; });
    return inventory;
}

}  // namespace infini_train::nn::parallel
