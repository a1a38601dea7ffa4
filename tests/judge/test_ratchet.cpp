// The ratchet's file and bits, and how many near ties may flip.
#include <filesystem>
#include <fstream>

#include "harness/judge/findings.h"
#include "harness/judge/flips.h"
#include "harness/judge/ratchet.h"
#include "references/base/error.h"
#include "tests/support/catch2.h"

using namespace mkbench;

namespace {

std::filesystem::path write_ratchet(const std::string& text) {
  const auto path = std::filesystem::temp_directory_path() / "mkbench_test_ratchet.json";
  std::ofstream(path) << text;
  return path;
}

// A reference of near ties with these margins, where the baseline's largest pairwise error is 1.
GreedyReference near_ties(const std::vector<double>& margins, int decided = 0) {
  GreedyReference r;
  r.prompts.emplace_back();
  for (const double margin : margins) {
    r.prompts[0].steps.emplace_back();
    r.prompts[0].steps.back().margin = margin;
    r.prompts[0].steps.back().baseline_pairwise = 1;
    r.prompts[0].steps.back().max_abs = 8;
  }
  for (int i = 0; i < decided; ++i) {
    r.prompts[0].steps.emplace_back();
    r.prompts[0].steps.back().margin = 0.1;
    r.prompts[0].steps.back().decided = true;
  }
  return r;
}

}  // namespace

TEST_CASE("logits of other bits than the committed ones are noted, and fail nothing") {
  for (const auto& [bits, noted] : {std::pair{"aa", "the committed bits"}, {"bb", "other bits"}}) {
    Findings findings;
    note_bits(bits, {.rms = 1, .step = {}, .inf = {}, .kl = {}, .repeats_sha256 = "aa"}, findings);
    ParityReport p;
    findings.conclude(p);
    CHECK(p.verdict == Verdict::kPass);
    CHECK_THAT(find_check(p, Check::kRatchet)->detail, ContainsText(noted));
  }
  Findings none;
  note_bits("aa", {.rms = 1, .step = {}, .inf = {}, .kl = {}, .repeats_sha256 = ""}, none);
  ParityReport p;
  none.conclude(p);
  CHECK(find_check(p, Check::kRatchet) == nullptr);
}

TEST_CASE("most flips: the 0.1 % point of what margins and the baseline's errors allow") {
  CHECK(most_flips(near_ties({}), false) == 0);
  CHECK(most_flips(near_ties({}, 50), false) == 0);
  // Coins: P(X > 8 of 10) = 0.0107, P(X > 9) = 0.00098.
  CHECK(most_flips(near_ties(std::vector<double>(10, 0.0)), false) == 9);
  CHECK(most_flips(near_ties(std::vector<double>(10, 0.0), 50), false) == 9);
  // 0.5 is one deviation: p = 0.1587, and P(X > 6 of 10) = 0.0006 where P(X > 5) = 0.0053.
  CHECK(most_flips(near_ties(std::vector<double>(10, 0.5)), false) == 6);
  // Two deviations: p = 0.0228; P(X > 1 of 4) = 0.0030, P(X > 2) = 4.6e-5.
  CHECK(most_flips(near_ties({1, 1, 1, 1}), false) == 2);
  // Logits of 8 rounded to bf16 are off by up to 1/32 each: margins of 0.06 turn by that alone.
  GreedyReference sharp = near_ties(std::vector<double>(10, 0.06));
  for (ReferenceStep& s : sharp.prompts[0].steps) s.baseline_pairwise = 0.02;
  CHECK(most_flips(sharp, false) == 0);
  CHECK(most_flips(sharp, true) >= 2);
  // The baseline may be exact at one step by chance: the median error counts there.
  GreedyReference lucky = near_ties(std::vector<double>(10, 0.5));
  lucky.prompts[0].steps[0].baseline_pairwise = 0;
  CHECK(most_flips(lucky, false) == 6);
}

TEST_CASE("ratchet files: found by key, absent, and refused where they are not one") {
  const RatchetKey key{"host-twin", "cpu", "tiny", "", "r1"};
  const std::string entry =
      R"({"engine": "host-twin", "card": "cpu", "model": "tiny", "lagset": "", "reference_sha256": "r1", "r_rms": 0.25})";
  const auto file = [](const std::string& entries) {
    return write_ratchet(R"({"schema": "mkbench.ratchet", "entries": [)" + entries + "]}");
  };
  CHECK(find_ratchet(file(entry), key)->rms == 0.25);
  CHECK_FALSE(find_ratchet(file(entry), key)->step);
  const std::string whole =
      entry.substr(0, entry.size() - 1) +
      R"(, "r_step": 0.5, "r_inf": 0.75, "r_kl": 0.125, "repeats_sha256": "ab"})";
  const auto all = find_ratchet(file(whole), key);
  CHECK((all->step == 0.5 && all->inf == 0.75 && all->kl == 0.125 && all->repeats_sha256 == "ab"));
  const std::string no_step = entry.substr(0, entry.size() - 1) + R"(, "r_step": "1"})";
  CHECK_THROWS_WITH(find_ratchet(file(no_step), key), ContainsText("entries[0].r_step"));
  for (const RatchetKey& other : {RatchetKey{"ring", "cpu", "tiny", "", "r1"},
                                  RatchetKey{"host-twin", "NVIDIA H200", "tiny", "", "r1"},
                                  RatchetKey{"host-twin", "cpu", "tiny-untied", "", "r1"},
                                  RatchetKey{"host-twin", "cpu", "tiny", "short", "r1"},
                                  RatchetKey{"host-twin", "cpu", "tiny", "", "r2"}}) {
    CHECK_FALSE(find_ratchet(file(entry), other));
  }
  CHECK_FALSE(find_ratchet("/nowhere/ratchet.json", key));
  CHECK_THROWS_WITH(find_ratchet(file(entry + "," + entry), key), ContainsText("twice"));
  CHECK_THROWS_WITH(find_ratchet(file(R"({"engine": 3})"), key), ContainsText("entries[0].engine"));
  const std::string zero = entry.substr(0, entry.rfind(':')) + ": 0}";
  CHECK_THROWS_WITH(find_ratchet(file(zero), key), ContainsText("entries[0].r_rms"));
  CHECK_THROWS_WITH(find_ratchet(write_ratchet("[]"), key), ContainsText("JSON object"));
  CHECK_THROWS_WITH(find_ratchet(write_ratchet("{}"), key), ContainsText("schema"));
  CHECK(card_of("cuda:0 NVIDIA H200") == "NVIDIA H200");
  CHECK(card_of("cpu") == "cpu");
}
