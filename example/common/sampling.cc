#include "example/common/sampling.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <vector>

#include "glog/logging.h"

namespace infini_train {
namespace {

/// Some tokens, by their ids, and what each weighs.
class Candidates {
 public:
    Candidates(std::span<const float> logits, float temperature) : logits_(logits), tokens_(logits.size()) {
        const double largest = *std::max_element(logits.begin(), logits.end());
        for (const float logit : logits) {
            weights_.push_back(std::exp((static_cast<double>(logit) - largest) / static_cast<double>(temperature)));
        }
        std::iota(tokens_.begin(), tokens_.end(), 0);
    }

    /// Keeps the k likeliest.
    void KeepFirst(size_t k) {
        if (k < tokens_.size()) {
            std::nth_element(tokens_.begin(), tokens_.begin() + static_cast<std::ptrdiff_t>(k), tokens_.end(),
                             [this](int32_t a, int32_t b) { return IsLikelier(a, b); });
            tokens_.resize(k);
            std::sort(tokens_.begin(), tokens_.end());
        }
    }

    /// Keeps the likeliest until they have a share of all that are left.
    void KeepShare(double share) {
        const double wanted = share * Total();
        const auto is_less_likely = [this](int32_t a, int32_t b) { return IsLikelier(b, a); };
        // A heap, not a sort: mostly few of a large vocabulary are kept.
        std::make_heap(tokens_.begin(), tokens_.end(), is_less_likely);
        auto kept = tokens_.end();  // from here on
        double sum = 0.0;
        do {
            std::pop_heap(tokens_.begin(), kept, is_less_likely);
            sum += Weight(*--kept);
        } while (sum < wanted && kept != tokens_.begin());
        tokens_.erase(tokens_.begin(), kept);
        std::sort(tokens_.begin(), tokens_.end());
    }

    int32_t Pick(double uniform) const {
        double left = uniform * Total();
        int32_t last = tokens_.front();
        for (const int32_t token : tokens_) {
            left -= Weight(token);
            if (left < 0.0) {
                return token;
            }
            last = Weight(token) > 0.0 ? token : last;
        }
        return last;  // rounding left a rest
    }

 private:
    double Weight(int32_t token) const { return weights_[static_cast<size_t>(token)]; }
    bool IsLikelier(int32_t a, int32_t b) const {
        const float of_a = logits_[static_cast<size_t>(a)];
        const float of_b = logits_[static_cast<size_t>(b)];
        return of_a > of_b || (of_a == of_b && a < b);
    }
    double Total() const {
        double total = 0.0;
        for (const int32_t token : tokens_) {
            total += Weight(token);
        }
        return total;
    }

    std::span<const float> logits_;
    std::vector<int32_t> tokens_;  // in the order of their ids
    std::vector<double> weights_;  // of all; the likeliest has 1
};

}  // namespace

int32_t SampleToken(std::span<const float> logits, const SamplingOptions& options, double uniform) {
    CHECK(!logits.empty()) << "no tokens to choose from";
    if (options.temperature == 0.0f) {
        return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
    }
    Candidates candidates(logits, options.temperature);
    if (options.top_k > 0) {
        candidates.KeepFirst(static_cast<size_t>(options.top_k));
    }
    if (options.top_p < 1.0f) {
        candidates.KeepShare(static_cast<double>(options.top_p));
    }
    return candidates.Pick(uniform);
}

}  // namespace infini_train
