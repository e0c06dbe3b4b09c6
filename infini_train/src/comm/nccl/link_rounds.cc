#include "infini_train/src/comm/nccl/link_rounds.h"

#include <set>

namespace infini_train::comm {

std::vector<std::vector<size_t>> LinkRounds(const std::vector<Link>& links) {
    std::vector<std::vector<size_t>> rounds;
    std::vector<std::set<int>> busy;  // ranks of each round
    for (size_t i = 0; i < links.size(); ++i) {
        const Link& link = links[i];
        if (link.from == link.to) {
            continue;
        }
        size_t round = 0;
        while (round < rounds.size() && (busy[round].contains(link.from) || busy[round].contains(link.to))) {
            ++round;
        }
        if (round == rounds.size()) {
            rounds.emplace_back();
            busy.emplace_back();
        }
        rounds[round].push_back(i);
        busy[round].insert({link.from, link.to});
    }
    return rounds;
}

}  // namespace infini_train::comm
