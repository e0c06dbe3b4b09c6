// Every phase of a run with every kind of fault, on processes: docs/faults.md.
#include "gtest/gtest.h"

#include "test/fault/fault_cases.h"

namespace infini_train::test {
namespace {

class Fault : public testing::TestWithParam<FaultCase> {};

TEST_P(Fault, EndsAllProcessesAndIsNamed) {
    ExpectThatAllEnd(GetParam());
}

INSTANTIATE_TEST_SUITE_P(Every, Fault, testing::ValuesIn(AllFaultCases()),
                         [](const testing::TestParamInfo<FaultCase>& info) { return NameOf(info.param); });

}  // namespace
}  // namespace infini_train::test
